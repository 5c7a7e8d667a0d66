package cluster

import (
	"fmt"
	"net"
	"syscall"
)

// portFree is an error when somebody listens on an address.
func portFree(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return ln.Close()
}

// reservePort takes a free port of loopback and keeps it until fd is closed:
// the socket is bound but never listens. Connections to the port are refused
// while no node listens there, the kernel gives it to nobody who asks for just
// any port (or it would, while a killed node is down), and a node that asks for
// this very port gets it, since both sides set SO_REUSEADDR.
func reservePort() (fd, port int, err error) {
	fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		if err != nil {
			_ = syscall.Close(fd) // err says what matters
		}
	}()
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, 0, err
	}
	if err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, 0, err
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, 0, err
	}
	in4, ok := sa.(*syscall.SockaddrInet4)
	if !ok {
		err = fmt.Errorf("bound to %T", sa)
		return 0, 0, err
	}
	return fd, in4.Port, nil
}
