// Package faultfs is a file system in user space (FUSE) over a directory, for tests
// of what a disk may do to a node: a chosen call fails, and a power cut takes an
// arbitrary part of what was not synced.
//
// # What a power cut takes
//
// The directory behind is what the node's kernel shows. Beside it an FS knows what
// of it is not on the disk:
//
//   - of each file the blocks of 4096 bytes written since the file's last fsync, as
//     they were then, and its size;
//   - the changes of names (create, mkdir, rename, remove) since the last fsync of
//     their directory, in order.
//
// A power cut draws for each block whether it got to the disk, and up to where the
// changes of names did: they are journaled, so those that got there are the older
// ones. A name is durable when its directory was synced, not when its file was.
//
// An fsync that fails takes some of the file's blocks at once, and the next one
// knows nothing of it, as the kernel counts pages as clean that it could not write.
//
// # Who owns what
//
// An FS owns both directories from Mount to Close. Its lock is held over each
// change and what is remembered of it, so that they agree.
package faultfs
