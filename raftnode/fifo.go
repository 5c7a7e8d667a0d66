package raftnode

// fifo is a queue in one array, which is used again when it has run empty or is full
// of what was taken out.
type fifo[T any] struct {
	items []T
	head  int // of items, taken out
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

// all returns what is in the queue, oldest first. It is valid until the next push.
func (q *fifo[T]) all() []T { return q.items[q.head:] }

func (q *fifo[T]) push(v T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// fifoKept is how many items an empty queue keeps room for.
const fifoKept = 1024

// pop takes the oldest out; there must be one.
func (q *fifo[T]) pop() T {
	v := q.items[q.head]
	var zero T
	q.items[q.head] = zero
	if q.head++; q.head == len(q.items) {
		if q.items, q.head = q.items[:0], 0; cap(q.items) > fifoKept {
			q.items = nil
		}
	}
	return v
}
