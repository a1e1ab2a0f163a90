package redisrig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy stands between clients and one server. It carries whole requests and answers, and does to
// some of them what a network may do. Each method that asks for a fault returns it. The test fails
// at its end when one did not happen, because what it saw then shows nothing.
type Proxy struct {
	// Addr is the host and port for clients, in place of the server's.
	Addr string

	t        testing.TB
	server   string
	listener net.Listener
	work     sync.WaitGroup // goroutines of the proxy; stop waits for them
	stopped  chan struct{}  // closed by stop

	mu     sync.Mutex
	links  []*link  // guarded by mu: all that were ever made
	faults []*Fault // guarded by mu: in the order in which they were asked for
}

// Which picks requests by their words, of which the first is the command.
type Which func(words []string) bool

// Nth picks the n-th of the requests that which picks, from 1, and no other.
func Nth(n int, which Which) Which {
	return func(words []string) bool {
		if which(words) {
			n--
			return n == 0
		}
		return false
	}
}

// StartProxy starts a proxy for one test.
func StartProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), t: t, server: s.Addr, listener: l, stopped: make(chan struct{})}
	p.work.Go(p.accept)
	t.Cleanup(p.stop)
	return p
}

// Dial is a client's way to the proxy, for those whose connections are to be refused.
func (p *Proxy) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	if f := p.pick([]string{dialling}, unreachable); f != nil {
		f.happen(Event{Request: []string{dialling}})
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("refused by the test")}
	}
	return (&net.Dialer{}).DialContext(ctx, network, p.Addr)
}

func (p *Proxy) accept() {
	for {
		front, err := p.listener.Accept()
		if err != nil {
			return // stopped
		}
		back, err := net.Dial("tcp", p.server)
		if err != nil {
			front.Close()
			continue
		}
		p.add(&link{p: p, front: front, back: back})
	}
}

func (p *Proxy) add(c *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = append(p.links, c)
	select {
	case <-p.stopped: // too late for stop to end it
		c.front.Close()
		c.back.Close()
	default:
	}
	p.work.Go(c.carryRequests)
	p.work.Go(c.carryAnswers)
}

// stop ends all connections. Unless the test has failed or was skipped, stop fails it for each
// fault that did not happen.
func (p *Proxy) stop() {
	close(p.stopped)
	p.listener.Close()
	for _, c := range p.all() {
		c.front.Close()
		c.back.Close()
	}
	p.work.Wait()
	if p.t.Failed() || p.t.Skipped() {
		return
	}
	for _, f := range p.faults {
		if n := f.missing(); n > 0 {
			p.t.Errorf("this test shows nothing: %v did not happen (%d times more was asked for)", f, n)
		}
	}
}

func (p *Proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.links)
}

// link is one connection through the proxy.
type link struct {
	p           *Proxy
	front, back net.Conn

	mu         sync.Mutex
	pending    []*pending // guarded by mu: requests that the server has yet to answer, in order
	subscribed bool       // guarded by mu: what the server sends answers no request
	frozen     *Fault     // guarded by mu: why what arrives is thrown away, or nil
	held       bool       // guarded by mu: the client is gone, and a request waits for Release
}

// pending is a request whose answer is awaited.
type pending struct {
	words []string
	raw   []byte      // to repeat it
	fault *Fault      // what is to be done to it, or nil
	late  chan string // of a request that was held: gets the answer
}

func (c *link) carryRequests() {
	defer c.end()
	r := bufio.NewReader(c.front)
	for {
		raw, err := readFrame(r, nil)
		if err != nil {
			return
		}
		words := wordsOf(raw)
		if f := c.frost(); f != nil {
			f.happen(Event{Request: words})
			continue
		}
		f := c.p.pick(words, lose, hold, repeat, refuse, count)
		switch {
		case f != nil && f.kind == hold:
			c.hold(f, words, raw)
			return
		case f != nil && f.kind == refuse:
			f.happen(Event{Request: words})
			if _, err := c.front.Write([]byte("-" + f.text + "\r\n")); err != nil {
				return
			}
			continue
		}
		c.expect(&pending{words: words, raw: raw, fault: f})
		if _, err := c.back.Write(raw); err != nil {
			return
		}
	}
}

// expect notes a request whose answer is to come.
func (c *link) expect(x *pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.HasSuffix(strings.ToLower(x.words[0]), "subscribe") {
		c.subscribed = true
	}
	c.pending = append(c.pending, x)
}

// answered is the request that an answer belongs to, or nil.
func (c *link) answered(frame []byte) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	if frame[0] == '>' || c.subscribed || len(c.pending) == 0 {
		return nil
	}
	x := c.pending[0]
	c.pending = c.pending[1:]
	return x
}

func (c *link) frost() *Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frozen
}

func (c *link) carryAnswers() {
	defer c.end()
	r := bufio.NewReader(c.back)
	for {
		frame, err := readFrame(r, nil)
		if err != nil {
			return
		}
		x := c.answered(frame)
		if x != nil && x.late != nil {
			x.late <- string(frame)
			return
		}
		if x != nil && x.fault != nil && !c.befall(x, frame, r) {
			return
		}
		if f := c.frost(); f != nil {
			f.happen(Event{Answer: string(frame)})
			continue
		}
		if _, err := c.front.Write(frame); err != nil {
			return
		}
	}
}

// befall does to a request what was asked for, now that the server has answered it. It reports
// whether the answer goes to the client.
func (c *link) befall(x *pending, frame []byte, r *bufio.Reader) bool {
	if isRefusal(frame) {
		x.fault.giveBack() // the server has not carried it out
		return true
	}
	if x.fault.kind == repeat {
		if _, err := c.back.Write(x.raw); err != nil {
			return false
		}
		again, err := readFrame(r, nil)
		if err != nil {
			return false
		}
		x.fault.happen(Event{Request: x.words, Answer: string(frame), Again: string(again)})
		return true
	}
	x.fault.happen(Event{Request: x.words, Answer: string(frame)})
	x.fault.waitForResume()
	return false
}

// hold takes a request from a client, which finds its connection broken.
func (c *link) hold(f *Fault, words []string, raw []byte) {
	c.mu.Lock()
	c.held = true
	c.mu.Unlock()
	f.holds(func() string { return c.deliver(words, raw) })
	f.happen(Event{Request: words})
	f.waitForResume()
	c.front.Close()
}

// deliver sends a request that was held, and returns the answer.
func (c *link) deliver(words []string, raw []byte) string {
	x := &pending{words: words, late: make(chan string, 1)}
	c.expect(x)
	if _, err := c.back.Write(raw); err != nil {
		return err.Error()
	}
	select {
	case answer := <-x.late:
		return answer
	case <-c.p.stopped:
		return "the proxy was stopped"
	case <-time.After(startTimeout):
		return "the server does not answer"
	}
}

// end closes both sides of a connection, with two exceptions. Of a connection that was forgotten
// the client has to notice that by itself, and one whose request is held is needed for Release.
func (c *link) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen == nil && !c.held {
		c.front.Close()
		c.back.Close()
	}
}

// isRefusal reports whether an answer is an error.
func isRefusal(frame []byte) bool { return frame[0] == '-' || frame[0] == '!' }

// readFrame reads one request or answer, of either version of the protocol, and appends it to raw
// as it came.
func readFrame(r *bufio.Reader, raw []byte) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	raw = append(raw, line...)
	if err != nil {
		return raw, err
	}
	items := 0
	switch line[0] {
	case '$', '!', '=':
		n := countOf(line)
		if n < 0 {
			return raw, nil
		}
		from := len(raw)
		raw = append(raw, make([]byte, n+2)...)
		_, err := io.ReadFull(r, raw[from:])
		return raw, err
	case '*', '~', '>':
		items = countOf(line)
	case '%':
		items = 2 * countOf(line)
	case '|': // stands in front of what it belongs to
		items = 2*countOf(line) + 1
	}
	for range items {
		if raw, err = readFrame(r, raw); err != nil {
			return raw, err
		}
	}
	return raw, nil
}

// countOf is the number in the first line of a frame.
func countOf(line []byte) int {
	n := 0
	if _, err := fmt.Sscanf(string(line[1:]), "%d", &n); err != nil {
		return -1
	}
	return n
}

// wordsOf are the words of a request.
func wordsOf(raw []byte) []string {
	r := bufio.NewReader(strings.NewReader(string(raw)))
	line, err := r.ReadBytes('\n')
	words := []string{}
	for range countOf(line) {
		word := ""
		if err == nil {
			word, err = readReply(r)
		}
		words = append(words, word)
	}
	if len(words) == 0 {
		return []string{strings.TrimSpace(string(raw))}
	}
	return words
}
