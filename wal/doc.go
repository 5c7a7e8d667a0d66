// Package wal is the durable log of one replica: raft's entries, hard state and
// snapshot markers, in the segment files of etcd's write-ahead log, with a
// replay, a lost-tail check and typed errors of our own.
//
// # Who owns what
//
// A Log has one owner, the log writer goroutine, which calls all its methods.
// Only Stats may be called from elsewhere. The directory belongs to the Log
// alone and holds nothing but segments (and the temporary files that etcd's
// package preallocates); the note lies beside it.
//
// # What is promised
//
//   - When Save or Mark returned, what had to be synced is synced. A write or sync
//     error poisons the Log: every later call returns the first error, and the
//     process has to end. Nothing is ever synced twice in the hope of a better
//     answer: after a failed fsync the kernel calls the pages clean.
//   - Open gives back the records in file order, folded: an entry drops all
//     entries at or above its index, a marker that the log does not contain drops
//     them all. etcd's own replay can bring truncated entries back, so its
//     answers are not used; it only makes the files writable.
//   - Open looks before it writes. Every check runs on read-only files; only then
//     are a torn tail cut and the files opened for writing.
//   - A log that lost or changed records that were promised is never opened:
//     *LostTailError and *CorruptError say where and what to do. A node that
//     gets one must neither vote nor serve.
//
// # The note
//
// A record torn by a power cut and a promised record damaged later look alike in
// the files: etcd's decoder takes a flipped length, a damaged record with a zero
// sector in it, or a zeroed frame for the end of the log, and cuts everything
// behind it. So after every fsync the Log writes its position, the running CRC
// and the hard state into a small side file (see note.go), and Open compares the
// files with it, by position alone: what ends before the note or differs at it
// was promised and is lost; what is torn after it was promised to nobody.
// The note is not synced: it survives the process; after a power cut it may be
// older than the log, never newer.
//
// The note also carries the base of log time (TimeBase), which is as old or new
// as the note.
//
// The bytes are described in docs/format-wal.md.
package wal
