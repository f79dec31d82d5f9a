package ringgate

// The connection over which the gateway registers this process with its fleet. It is a socket of its
// own beside the workers': a gateway knows no backend of this name before it is registered, so its
// workers would refuse the link. While it lives, the process stands in the fleet.

import "path/filepath"

type registration struct {
	socket *socket
	// What is to be said; nothing before the game has said anything.
	record []byte
	// The latest has not been said.
	isDue    bool
	standing Standing
}

// Connects, where it is not connected, and says what is due. False where the gateway is not there,
// or does not take it: that is tried again.
func (r *registration) say(runDir string, arrivals chan<- arrival) bool {
	if len(r.record) == 0 {
		return true
	}
	if r.socket == nil {
		socket, err := dial(filepath.Join(runDir, "announce.sock"))
		if err != nil {
			return false
		}
		r.socket, r.isDue = socket, true
		go r.read(socket, arrivals)
	}
	if !r.isDue {
		return true
	}
	switch err := r.socket.send(r.record); {
	case err == nil:
		r.isDue = false
	case isFull(err):
		// It does not read fast enough: the latest is what counts, later.
	default:
		// What it has said before it hung up is still read.
		r.socket.shutDown()
	}
	return !r.isDue
}

// Reads until the end.
func (r *registration) read(from *socket, arrivals chan<- arrival) {
	for {
		answer := make([]byte, standingBytesRead)
		length, err := from.read(answer)
		select {
		case arrivals <- arrival{socket: from, bytes: answer[:length], err: err}:
		case <-from.over:
			return
		}
		if err != nil {
			return
		}
	}
}

// Takes what the gateway has answered. False where it has hung up.
func (r *registration) hear(answer *arrival) bool {
	if answer.err != nil {
		r.close()
		return false
	}
	if standing, isStanding := decodeStanding(answer.bytes); isStanding {
		r.standing = standing
	}
	return true
}

// Whoever refuses hangs up, and what it has said last still holds.
func (r *registration) close() {
	if r.socket != nil {
		r.socket.close()
		r.socket = nil
	}
	if r.standing == StandingRegistered {
		r.standing = StandingWaiting
	}
}
