package kubeapi

import "sync/atomic"

// Room bounds the bytes that all requests of the process hold in memory for one purpose.
type Room struct {
	Most int64
	held atomic.Int64
}

// Held is how many bytes requests hold now.
func (r *Room) Held() int64 { return r.held.Load() }

// Part is one request's part of a Room. It is freed when the request ends.
type Part struct {
	Of   *Room
	held int64
}

// Take says whether there was room for so many bytes more, which the request then holds.
func (p *Part) Take(bytes int) bool {
	if p.Of.held.Add(int64(bytes)) > p.Of.Most {
		p.Of.held.Add(int64(-bytes))
		return false
	}
	p.held += int64(bytes)
	return true
}

// Free gives all of the part back.
func (p *Part) Free() {
	p.Of.held.Add(-p.held)
	p.held = 0
}
