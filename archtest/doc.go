// Package archtest holds no code, only tests that keep the architecture: which
// package may import which, and that the deterministic machine stays pure. A
// package without a rule fails the test, so that a new one is a decision.
package archtest
