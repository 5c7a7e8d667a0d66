// Package snapshot keeps snapshot files: whole images of a machine at one index,
// compressed, checksummed, published atomically.
//
// # Who owns what
//
// The caller owns the directory and says when to write, read and prune; the
// package has no state. Any goroutine may call any function; two writers of the
// same index make the same file, and the later rename wins.
//
// # What is promised
//
//   - A file of the final name is whole: it is written under a temporary name,
//     synced, renamed, and the directory is synced. Files that the transport
//     received carry the same names and the same format.
//   - No byte of a file reaches the caller before the whole file was hashed and
//     found right. Damage is a *DamageError, for any changed or missing byte.
//   - The same header and content give the same bytes, with the same version of
//     the compression library.
//   - List and Prune go by names alone; temporary files are never listed.
//
// The package knows nothing of what is inside. The bytes are described in
// docs/format-snapshot.md.
package snapshot
