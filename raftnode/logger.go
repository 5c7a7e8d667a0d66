package raftnode

import "go.uber.org/zap"

// raftLogger lets raft speak through zap. Its Info lines tell each step of an
// election; the core logs the outcome, so they are for debugging.
type raftLogger struct{ *zap.SugaredLogger }

func (l raftLogger) Info(v ...any)               { l.SugaredLogger.Debug(v...) }
func (l raftLogger) Infof(f string, v ...any)    { l.SugaredLogger.Debugf(f, v...) }
func (l raftLogger) Warning(v ...any)            { l.SugaredLogger.Warn(v...) }
func (l raftLogger) Warningf(f string, v ...any) { l.SugaredLogger.Warnf(f, v...) }
func (l raftLogger) Fatal(v ...any)              { l.SugaredLogger.Panic(v...) }
func (l raftLogger) Fatalf(f string, v ...any)   { l.SugaredLogger.Panicf(f, v...) }
