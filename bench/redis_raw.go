package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// The reference shows what Redis can do without a queue: the same server keeps the bytes of a
// message in a sorted set and a hash, and gives them back. There is no claim, so a consumer that
// dies loses what it took. A consumer takes the earliest messages, whether they are due or not. The
// program writes the protocol by hand, so that it needs hardly any CPU time.

const (
	rawTimes  = "bench:t" // the sorted set: ID by due time
	rawBodies = "bench:m" // the hash: body by ID
)

// rawConn is one connection to Redis.
type rawConn struct {
	conn net.Conn
	out  []byte // commands that were not sent yet
	in   *bufio.Reader
}

func dialRaw(ctx context.Context, addr string) (*rawConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return newRawConn(conn), nil
}

func newRawConn(conn net.Conn) *rawConn {
	return &rawConn{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
}

// begin begins a command of n words. The caller adds the words.
func (c *rawConn) begin(n int) {
	c.out = append(strconv.AppendInt(append(c.out, '*'), int64(n), 10), "\r\n"...)
}

func (c *rawConn) word(w []byte) {
	c.out = append(strconv.AppendInt(append(c.out, '$'), int64(len(w)), 10), "\r\n"...)
	c.out = append(append(c.out, w...), "\r\n"...)
}

func (c *rawConn) words(ws ...string) {
	for _, w := range ws {
		c.out = append(strconv.AppendInt(append(c.out, '$'), int64(len(w)), 10), "\r\n"...)
		c.out = append(append(c.out, w...), "\r\n"...)
	}
}

// send sends the commands that were written since the last send.
func (c *rawConn) send() error {
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

// header reads the first line of a reply of the given kind and returns the number in it: the
// integer itself (kind ':'), the length of a text ('$'), or that of a list ('*').
func (c *rawConn) header(kind byte) (int, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 4 || line[0] != kind {
		return 0, fmt.Errorf("redis answers %q where a reply that begins with %c should be", line, kind)
	}
	return strconv.Atoi(string(line[1 : len(line)-2]))
}

// text reads a text and returns it, in buf if that is large enough.
func (c *rawConn) text(buf []byte) ([]byte, error) {
	n, err := c.header('$')
	if err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, errors.New("redis answers nil where a text should be")
	}
	if cap(buf) < n+2 {
		buf = make([]byte, n+2)
	}
	_, err = io.ReadFull(c.in, buf[:n+2])
	return buf[:n], err
}

// added reads an integer, the reply to a command that adds or removes n items, and returns an error
// if it is not n.
func (c *rawConn) added(n int) error {
	got, err := c.header(':')
	if err == nil && got != n {
		err = fmt.Errorf("redis added %d of %d", got, n)
	}
	return err
}

// rawID returns the ID of a letter: its number in 26 digits, because IDs that Punctual makes have
// 26 bytes, too.
func rawID(l letter) []byte {
	id := bytes.Repeat([]byte{'0'}, idBytes)
	digits := strconv.AppendUint(nil, uint64(l.seq), 10)
	copy(id[idBytes-len(digits):], digits)
	return id
}

func rawDue(l letter) []byte { return strconv.AppendInt(nil, l.due.UnixMilli(), 10) }

// push sends a ZADD and an HSET for each letter, all in one pipeline, and then reads the replies.
func (c *rawConn) push(ls []letter) error {
	for _, l := range ls {
		id := rawID(l)
		c.begin(4)
		c.words("ZADD", rawTimes)
		c.word(rawDue(l))
		c.word(id)
		c.begin(4)
		c.words("HSET", rawBodies)
		c.word(id)
		c.word(l.body())
	}
	if err := c.send(); err != nil {
		return err
	}
	for range 2 * len(ls) {
		if err := c.added(1); err != nil {
			return err
		}
	}
	return nil
}

// pushLists sends one ZADD and one HSET for all the letters.
func (c *rawConn) pushLists(ls []letter) error {
	c.begin(2 + 2*len(ls))
	c.words("ZADD", rawTimes)
	for _, l := range ls {
		c.word(rawDue(l))
		c.word(rawID(l))
	}
	c.begin(2 + 2*len(ls))
	c.words("HSET", rawBodies)
	for _, l := range ls {
		c.word(rawID(l))
		c.word(l.body())
	}
	if err := c.send(); err != nil {
		return err
	}
	return errors.Join(c.added(len(ls)), c.added(len(ls)))
}

// take removes up to n letters, the earliest first, and passes their bodies to handle. It returns
// how many there were.
func (c *rawConn) take(n int, handle func(body []byte)) (int, error) {
	c.begin(3)
	c.words("ZPOPMIN", rawTimes, strconv.Itoa(n))
	if err := c.send(); err != nil {
		return 0, err
	}
	words, err := c.header('*')
	if err != nil || words == 0 {
		return 0, err
	}
	ids := make([][]byte, 0, n)
	for i := range words {
		w, err := c.text(nil)
		if err != nil {
			return 0, err
		}
		if i%2 == 0 { // every second word is a score
			ids = append(ids, w)
		}
	}
	return len(ids), c.takeBodies(ids, handle)
}

// takeBodies reads and deletes the bodies of some letters in one round trip.
func (c *rawConn) takeBodies(ids [][]byte, handle func(body []byte)) error {
	for _, command := range []string{"HMGET", "HDEL"} {
		c.begin(2 + len(ids))
		c.words(command, rawBodies)
		for _, id := range ids {
			c.word(id)
		}
	}
	if err := c.send(); err != nil {
		return err
	}
	if _, err := c.header('*'); err != nil {
		return err
	}
	var buf []byte
	for range ids {
		body, err := c.text(buf)
		if err != nil {
			return err
		}
		handle(body)
		buf = body[:0]
	}
	return c.added(len(ids)) // the reply to HDEL is how many fields it removed
}

// rawSystem is the scheduling side of the reference.
type rawSystem struct {
	server *redisServer
	conns  []*rawConn // one for each caller
	lists  bool       // push by one ZADD and one HSET for all letters, and not by a pair for each
}

func openRaw(ctx context.Context, s *redisServer, callers int, lists bool) (*rawSystem, error) {
	r := &rawSystem{server: s, lists: lists}
	for range callers {
		c, err := dialRaw(ctx, s.addr)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.conns = append(r.conns, c)
	}
	return r, nil
}

func (r *rawSystem) push(_ context.Context, who int, ls []letter) error {
	if r.lists {
		return r.conns[who].pushLists(ls)
	}
	return r.conns[who].push(ls)
}

func (r *rawSystem) pending(ctx context.Context) (int64, error) {
	times, err := r.server.asks.ZCard(ctx, rawTimes).Result()
	if err != nil {
		return 0, err
	}
	bodies, err := r.server.asks.HLen(ctx, rawBodies).Result()
	if err == nil && times != bodies {
		err = fmt.Errorf("the reference has %d times and %d bodies", times, bodies)
	}
	return times, err
}

func (r *rawSystem) close() error {
	var errs []error
	for _, c := range r.conns {
		errs = append(errs, c.conn.Close())
	}
	return errors.Join(errs...)
}

// consumeRaw takes messages from t.Instant on, until none are left or ctx ends.
func consumeRaw(ctx context.Context, t consumerTask, handle func(body []byte)) error {
	c, err := dialRaw(ctx, t.Addr)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(time.Until(t.Instant)):
	}
	for ctx.Err() == nil {
		n, err := c.take(t.Slots, handle)
		if n == 0 || err != nil {
			return err
		}
	}
	return nil
}
