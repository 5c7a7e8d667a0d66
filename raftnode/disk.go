package raftnode

import (
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	diskEvery = time.Second
	diskSlack = 1 // percent below a step at which it is left behind
)

// diskUsed is how full the filesystem of a directory is, in percent.
func diskUsed(dir string) (percent float64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	// As df has it: what only root may use counts as used by nobody.
	used := s.Blocks - s.Bfree
	if of := used + s.Bavail; of > 0 {
		return float64(used) * 100 / float64(of), nil
	}
	return 100, nil
}

// watchFilesystem looks every second how full the data directory's filesystem is
// and tells the core of each step that is passed or left behind.
func (n *Node) watchFilesystem() {
	t := time.NewTicker(n.cfg.diskEvery)
	defer t.Stop()
	step, failed := uint8(0), false
	for {
		percent, err := n.cfg.DiskUsed(n.cfg.DataDir)
		switch {
		case err != nil:
			if !failed {
				n.log.Warn("cannot tell how full the disk is", zap.String("data-dir", n.cfg.DataDir), zap.Error(err))
			}
		default:
			n.diskPercent.Store(uint64(percent))
			if next := diskStep(step, percent); next != step {
				step = next
				n.box.post(diskSeen{step})
			}
		}
		failed = err != nil
		select {
		case <-t.C:
		case <-n.done:
			return
		}
	}
}

// diskStep is the step after was, at this use: a step is left behind only when the
// use is clearly below it, so that it does not come and go.
func diskStep(was uint8, percent float64) uint8 {
	now := stepOf(int64(percent*100), 100_00)
	if now < was {
		return max(now, min(was, stepOf(int64((percent+diskSlack)*100), 100_00)))
	}
	return now
}
