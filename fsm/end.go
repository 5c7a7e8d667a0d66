package fsm

// End says whether and how a job ended.
type End uint8

// The ends.
const (
	EndNone    End = iota // it has not
	EndDone               // acked, or deleted
	EndExpired            // its TTL was over
	EndDead
)

// JobEnd is a job's end; Job is there as long as the job is.
type JobEnd struct {
	End End
	Job JobInfo
}

// JobEnd tells whether and how a job ended. The code is CodeJobNotFound when
// nothing is known of it: it never was, or it ended long ago.
func (m *Machine) JobEnd(k Key) (JobEnd, Code) {
	if job, code := m.Job(k); code == CodeOK {
		e := JobEnd{Job: job}
		if job.State == stateNames[stateDead] {
			e.End = EndDead
		}
		return e, CodeOK
	}
	switch m.gone(k) {
	case CodeOK:
		return JobEnd{End: EndDone}, CodeOK
	case CodeJobGone:
		return JobEnd{End: EndExpired}, CodeOK
	}
	return JobEnd{}, CodeJobNotFound
}

// Kept returns what is kept of a Keyed under its key: what a replay would answer,
// without a position.
func (m *Machine) Kept(key string) (res Result, ok bool) {
	k, ok := m.kept.Get(&kept{key: key})
	if !ok {
		return res, false
	}
	f := fields{data: []byte(k.result)}
	if f.result(&res, true); !f.ok() {
		panic("BUG: a kept result that cannot be read")
	}
	res.Replay = true
	return res, true
}
