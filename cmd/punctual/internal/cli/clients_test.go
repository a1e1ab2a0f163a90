//go:build unix

package cli

import (
	"bufio"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The clients in other languages are tried by the scenarios of clients/scenarios, one list for all
// languages. A runner in each language carries out what the client has to do; this test has the
// server, the faults between client and server, and compares.

const clientsDir = "../../../../clients"

// clientLanguage says how the runner of a language is started.
type clientLanguage struct {
	name    string
	needs   []string // programs
	build   func(t *testing.T, dir string)
	command []string // with DIR for what build has made
}

var clientLanguages = []clientLanguage{
	{name: "python", needs: []string{"python3"}, command: []string{"python3", clientsDir + "/python/tests/runner.py"}},
	{
		name: "typescript", needs: []string{"node", "tsc"},
		build:   buildTypeScript,
		command: []string{"node", clientsDir + "/typescript/tests/runner.mjs", "DIR"},
	},
}

// buildTypeScript has tsc make dir, with modules for Node.
func buildTypeScript(t *testing.T, dir string) {
	t.Helper()
	typescript.once.Do(func() {
		if typescript.dir, typescript.err = os.MkdirTemp("", "punctual-"); typescript.err != nil {
			return
		}
		out, err := exec.Command("tsc", "-p", clientsDir+"/typescript", "--outDir", typescript.dir).CombinedOutput()
		if err != nil {
			typescript.err = fmt.Errorf("tsc: %w: %s", err, out)
		}
	})
	err := typescript.err
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(typescript.dir))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// forEachClient runs f for each language, beside one another.
func forEachClient(t *testing.T, f func(t *testing.T, command []string)) {
	for _, l := range clientLanguages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			for _, program := range l.needs {
				if _, err := exec.LookPath(program); err != nil {
					t.Fatalf("there is no %s: install it, on Debian and Ubuntu with: sudo make deps", program)
				}
			}
			dir := t.TempDir()
			if l.build != nil {
				l.build(t, dir)
			}
			command := slices.Clone(l.command)
			for i := range command {
				command[i] = strings.ReplaceAll(command[i], "DIR", dir)
			}
			f(t, command)
		})
	}
}

// scenario is one entry of clients/scenarios/scenarios.json; README.md beside it says what the
// steps mean.
type scenario struct {
	Name  string         `json:"name"`
	Slow  bool           `json:"slow"`
	Steps []scenarioStep `json:"steps"`
}

type scenarioStep struct {
	// What the client does.
	Call    string                     `json:"call"`
	Args    []any                      `json:"args"`
	Options map[string]json.RawMessage `json:"options"`
	Open    *map[string]any            `json:"open"`
	Work    *map[string]any            `json:"work"`
	Stop    *map[string]any            `json:"stop"`
	Gate    []string                   `json:"gate"`
	As      string                     `json:"as"`   // the call goes on, and Join waits for it
	Join    string                     `json:"join"` // compares with Want or Error
	Want    any                        `json:"want"`
	Error   any                        `json:"error"`
	// What happens to the client, the network and the server.
	Suspend  bool           `json:"suspend"`
	Resume   bool           `json:"resume"`
	Fault    *fault         `json:"fault"`
	Let      string         `json:"let"`
	Happened map[string]int `json:"happened"`
	Server   string         `json:"server"`
	Token    string         `json:"token"` // the network asks for it
	File     string         `json:"file"`  // is written into the file $file
	Push     map[string]any `json:"push"`
	Settings map[string]any `json:"settings"`
	Cancel   []string       `json:"cancel"`
	Steal    []string       `json:"steal"` // leases a message for another consumer, as soon as its lease is over
	Ack      []string       `json:"ack"`   // acks as that consumer
	Pause    int            `json:"pause_ms"`
	// What is waited for and compared.
	Event   map[string]any `json:"event"`
	Begun   map[string]int `json:"begun"`
	Message []string       `json:"message"`
	At      string         `json:"get"`
}

// fault is what the network does with some requests.
type fault struct {
	Name  string `json:"name"`
	On    string `json:"on"`   // the end of the path
	With  string `json:"with"` // a part of the body
	Do    string `json:"do"`   // lose, refuse, hold, delay, 502
	Times int    `json:"times"`
	MS    int    `json:"ms"`
}

// faultyNetwork is a proxy between a client and a server.
type faultyNetwork struct {
	t     *testing.T
	front *httptest.Server

	mu       sync.Mutex
	url      string // of the server
	faults   []*fault
	happened map[string]int
	held     map[string]chan struct{} // closed by let
	token    string                   // requests without it are refused; empty for any
	// random, if not nil, says what becomes of a request that no fault is about: as fault.Do.
	random func() string
}

func newFaultyNetwork(t *testing.T) *faultyNetwork {
	p := &faultyNetwork{t: t}
	p.forget()
	p.front = httptest.NewServer(p)
	t.Cleanup(func() {
		p.forget()
		p.front.CloseClientConnections()
		p.front.Close()
	})
	return p
}

// forget ends all faults.
func (p *faultyNetwork) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.held {
		close(c)
	}
	p.token, p.faults, p.happened, p.held = "", nil, make(map[string]int), make(map[string]chan struct{})
}

func (p *faultyNetwork) lead(url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.url = url
}

func (p *faultyNetwork) add(f *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Name == "" {
		f.Name = f.Do
	}
	if f.Times == 0 {
		f.Times = 1
	}
	if f.Do == "hold" {
		p.held[f.Name] = make(chan struct{})
	}
	p.faults = append(p.faults, f)
}

func (p *faultyNetwork) let(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.held[name]; c != nil {
		close(c)
		delete(p.held, name)
	}
	for _, f := range p.faults {
		if f.Name == name {
			f.Times = 0
		}
	}
}

func (p *faultyNetwork) count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.happened[name]
}

// choose returns what is to become of a request, and what a held one waits for.
func (p *faultyNetwork) choose(path, body string) (f fault, held chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.Times != 0 && strings.HasSuffix(path, f.On) && strings.Contains(body, f.With) {
			f.Times--
			p.happened[f.Name]++
			return *f, p.held[f.Name]
		}
	}
	if p.random != nil {
		f.Do = p.random()
		f.Name = f.Do
		p.happened[f.Do]++
	}
	return f, nil
}

func (p *faultyNetwork) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	p.mu.Lock()
	to, err := url.Parse(p.url)
	token := p.token
	if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
		p.happened["refused token"]++
		p.mu.Unlock()
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"status":401,"code":"unauthenticated","detail":"another token","definite":true}`) // the client may have gone
		return
	}
	p.mu.Unlock()
	if err != nil {
		p.t.Error(err)
		return
	}
	f, held := p.choose(r.URL.Path, string(body))
	switch f.Do {
	case "refuse":
		panic(http.ErrAbortHandler)
	case "502":
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	proxy.ModifyResponse = func(*http.Response) error {
		switch f.Do {
		case "lose":
			return errors.New("lost")
		case "delay":
			time.Sleep(time.Duration(f.MS) * time.Millisecond)
		case "hold":
			<-held
		}
		return nil
	}
	proxy.ServeHTTP(w, r)
}

// clientRun is a server, a network and the runner of a client.
type clientRun struct {
	t       *testing.T
	shell   *shell
	server  *process
	url     string
	network *faultyNetwork
	command []string
	topic   string            // in place of $t in steps
	places  *strings.Replacer // in place of $net, $tls, $ca, $socket and $file
	file    string

	cmd   *exec.Cmd
	in    io.WriteCloser
	errs  *buffer
	ended chan struct{}

	mu      sync.Mutex
	n       int                   // commands
	answers map[int]chan said     // guarded by mu
	events  []map[string]any      // guarded by mu
	calls   map[string]chan said  // those under way, by their names
	tokens  map[string]string     // of what steal leased
	onLine  func(json.RawMessage) // gets lines for the ledger
}

// said is the answer of a runner to one command.
type said struct {
	Value any            `json:"value"`
	Error map[string]any `json:"error"`
}

func newClientRun(t *testing.T, command []string) *clientRun {
	c := &clientRun{t: t, shell: newShell(t), network: newFaultyNetwork(t), command: command}
	c.serve()
	dir, err := os.MkdirTemp("", "p") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c.file = filepath.Join(dir, "token")
	secure := httptest.NewUnstartedServer(c.network)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	secure.StartTLS()
	socket := httptest.NewUnstartedServer(c.network)
	for _, s := range []*httptest.Server{secure, socket} {
		t.Cleanup(func() {
			s.CloseClientConnections()
			s.Close()
		})
	}
	socket.Listener.Close()
	if socket.Listener, err = net.Listen("unix", filepath.Join(dir, "s")); err != nil {
		t.Fatal(err)
	}
	socket.Start()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, "ca"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	c.places = strings.NewReplacer("$net", c.network.front.URL, "$tls", secure.URL, "$ca", filepath.Join(dir, "ca"), "$socket", "unix:"+filepath.Join(dir, "s"), "$file", c.file)
	return c
}

func (c *clientRun) serve() {
	c.server = c.shell.start("serve", "--listen", "127.0.0.1:0", "--no-console", "--rate", "1000000")
	c.url = listening(c.t, c.server)
	c.network.lead(c.url)
}

func (c *clientRun) kill() {
	c.server.signal(syscall.SIGKILL)
	c.server.wait()
}

// start starts the runner anew.
func (c *clientRun) start() {
	c.t.Helper()
	c.answers, c.events, c.calls, c.tokens = make(map[int]chan said), nil, make(map[string]chan said), make(map[string]string)
	c.cmd, c.errs, c.ended = exec.Command(c.command[0], c.command[1:]...), &buffer{}, make(chan struct{})
	c.cmd.Stderr = c.errs
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go c.read(out, c.ended)
}

// end ends the runner and waits for it.
func (c *clientRun) end() {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Kill() // it may have ended, which the test has noticed then
	<-c.ended
	_ = c.cmd.Wait() // killed
	c.cmd = nil
}

func (c *clientRun) read(out io.Reader, ended chan struct{}) {
	defer close(ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line struct {
			N    int    `json:"n"`
			Line string `json:"line"`
			said
		}
		raw := slices.Clone(lines.Bytes())
		if err := json.Unmarshal(raw, &line); err != nil {
			c.t.Errorf("the runner says %q: %v", raw, err)
			continue
		}
		c.mu.Lock()
		switch {
		case c.onLine != nil && line.N == 0:
			c.onLine(raw)
		case line.N != 0:
			c.answers[line.N] <- line.said
		default:
			var event map[string]any
			if err := json.Unmarshal(raw, &event); err != nil {
				c.t.Error(err)
			}
			c.events = append(c.events, event)
		}
		c.mu.Unlock()
	}
}

// tell sends a command to the runner.
func (c *clientRun) tell(command map[string]any) chan said {
	c.t.Helper()
	c.mu.Lock()
	c.n++
	command["n"] = c.n
	answer := make(chan said, 1)
	c.answers[c.n] = answer
	c.mu.Unlock()
	text, err := json.Marshal(command)
	if err == nil {
		_, err = c.in.Write(append([]byte(strings.ReplaceAll(c.places.Replace(string(text)), "$t", c.topic)), '\n'))
	}
	if err != nil {
		c.t.Fatalf("%v; the runner's standard error: %s", err, c.errs.String())
	}
	return answer
}

const scenarioLimit = 30 * time.Second

// answer waits for the answer to a command and compares it.
func (c *clientRun) answer(from chan said, s *scenarioStep) {
	c.t.Helper()
	select {
	case a := <-from:
		if s.Error != nil {
			if a.Error == nil || !contains(a.Error, c.filled(s.Error)) {
				c.t.Fatalf("the client answered %v, %v, want the error %v", a.Value, a.Error, s.Error)
			}
		} else if a.Error != nil || s.Want != nil && !contains(a.Value, c.filled(s.Want)) {
			c.t.Fatalf("the client answered %v, %v, want %v; its standard error: %s", a.Value, a.Error, s.Want, c.errs.String())
		}
	case <-c.ended:
		c.t.Fatalf("the runner has ended: %s", c.errs.String())
	case <-time.After(scenarioLimit):
		c.t.Fatalf("no answer; standard error: %s; events: %v", c.errs.String(), c.events)
	}
}

// filled returns a value of a step with the topic of the scenario.
func (c *clientRun) filled(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "$t", c.topic)
	case map[string]any:
		out := make(map[string]any)
		for name, x := range v {
			out[name] = c.filled(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = c.filled(v[i])
		}
		return out
	}
	return v
}

// contains reports whether a value has what is wanted: the members of an object, all items of a
// list, or the value itself. A text that begins with ~ is wanted as a part.
func contains(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		for name, w := range want {
			g, there := got[name]
			ok = ok && (there && contains(g, w) || !there && w == nil)
		}
		return ok
	case []any:
		got, ok := got.([]any)
		ok = ok && len(got) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = contains(got[i], want[i])
		}
		return ok
	case string:
		text, ok := got.(string)
		part, isPart := strings.CutPrefix(want, "~")
		return ok && (text == want || isPart && strings.Contains(text, part))
	}
	return fmt.Sprint(got) == fmt.Sprint(want)
}

func (c *clientRun) until(what string, done func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(scenarioLimit); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.t.Fatalf("waited in vain for %s; events %v; standard error: %s", what, c.events, c.errs.String())
		}
	}
}

// ask sends a request to the server itself and returns the answer, or the problem.
func (c *clientRun) ask(method, path string, body any) (out map[string]any) {
	c.t.Helper()
	text := ""
	if body != nil {
		b, err := json.Marshal(c.filled(body))
		if err != nil {
			c.t.Fatal(err)
		}
		text = string(b)
	}
	answer := call(c.t, method, c.url+strings.ReplaceAll(path, "$t", c.topic), text)
	if json.Unmarshal([]byte(answer), &out) != nil {
		return nil // no object: nothing was due
	}
	return out
}

// step carries out one step.
func (c *clientRun) step(s *scenarioStep) {
	t := c.t
	t.Helper()
	command := map[string]any{}
	switch {
	case s.Call == "push_many":
		command = map[string]any{"do": "push_many", "args": s.Args}
	case s.Call != "":
		command = map[string]any{"do": "call", "call": s.Call, "args": s.Args, "options": s.Options}
	case s.Open != nil:
		options := map[string]any{"urls": []string{c.network.front.URL}}
		for name, v := range *s.Open {
			options[name] = v
		}
		command = map[string]any{"do": "open", "options": options}
	case s.Work != nil:
		command = map[string]any{"do": "work", "options": *s.Work}
	case s.Stop != nil:
		command = map[string]any{"do": "stop", "options": *s.Stop}
	case s.Gate != nil:
		command = map[string]any{"do": "gate", "args": s.Gate}
	case s.Join != "":
		c.answer(c.calls[s.Join], s)
		return
	}
	if len(command) > 0 {
		answer := c.tell(command)
		if s.As != "" {
			c.calls[s.As] = answer
			return
		}
		c.answer(answer, s)
		return
	}
	switch {
	case s.Suspend, s.Resume:
		sig := syscall.SIGSTOP
		if s.Resume {
			sig = syscall.SIGCONT
		}
		if err := c.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	case s.Fault != nil:
		f := *s.Fault
		f.With = strings.ReplaceAll(f.With, "$t", c.topic)
		c.network.add(&f)
	case s.Let != "":
		c.network.let(s.Let)
	case s.Happened != nil:
		for name, n := range s.Happened {
			c.until(fmt.Sprintf("fault %s %d times", name, n), func() bool { return c.network.count(name) >= n })
		}
	case s.Token != "":
		c.network.mu.Lock()
		c.network.token = s.Token
		c.network.mu.Unlock()
	case s.File != "":
		if err := os.WriteFile(c.file, []byte(s.File+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	case s.Server == "kill":
		c.kill()
	case s.Server == "start":
		c.serve()
	case s.Push != nil:
		if s.Push["body"] == nil {
			s.Push["body"] = "x"
		}
		if got := c.ask("POST", "/v1/push", map[string]any{"messages": []any{s.Push}}); !contains(got, map[string]any{"results": []any{map[string]any{"result": "stored"}}}) {
			t.Fatalf("push: %v", got)
		}
	case s.Settings != nil:
		c.ask("PATCH", "/v1/topics/$t/settings", s.Settings)
	case s.Cancel != nil:
		c.ask("DELETE", "/v1/topics/"+s.Cancel[0]+"/messages/"+s.Cancel[1], nil)
	case s.Steal != nil:
		c.until("the end of the lease of "+s.Steal[1], func() bool {
			d := c.ask("POST", "/v1/topics/"+s.Steal[0]+"/messages/"+s.Steal[1]+"/claim?lease=1m", nil)
			ds, _ := d["messages"].([]any)
			if len(ds) == 1 {
				c.tokens[s.Steal[1]] = ds[0].(map[string]any)["token"].(string)
			}
			return len(ds) == 1
		})
	case s.Ack != nil:
		if got := c.ask("POST", "/v1/topics/"+s.Ack[0]+"/messages/"+s.Ack[1]+"/ack?token="+c.tokens[s.Ack[1]], nil); got["code"] != nil {
			t.Fatalf("ack: %v", got)
		}
	case s.Pause != 0: // to see that nothing happens
		time.Sleep(time.Duration(s.Pause) * time.Millisecond)
	case s.Event != nil:
		c.until(fmt.Sprintf("event %v", s.Event), func() bool { return c.saw(s.Event) > 0 })
	case s.Begun != nil:
		for id, n := range s.Begun {
			if got := c.saw(map[string]any{"event": "begin", "id": id}); got != n {
				t.Fatalf("handlers of %s began %d times, want %d; events %v", id, got, n, c.events)
			}
		}
	case s.Message != nil:
		var got map[string]any
		c.until(fmt.Sprintf("%v to be %v", s.Message, s.Want), func() bool {
			got = c.ask("GET", "/v1/topics/"+s.Message[0]+"/messages/"+s.Message[1], nil)
			return contains(got, c.filled(s.Want))
		})
	case s.At != "":
		if got := c.ask("GET", s.At, nil); !contains(got, c.filled(s.Want)) {
			t.Fatalf("%s: %v, want %v", s.At, got, s.Want)
		}
	default:
		t.Fatalf("a step that says nothing: %+v", s)
	}
}

// saw counts the events that have these members.
func (c *clientRun) saw(event map[string]any) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if contains(e, c.filled(event)) {
			n++
		}
	}
	return n
}

func readScenarios(t *testing.T) (all []scenario) {
	text, err := os.ReadFile(filepath.Join(clientsDir, "scenarios/scenarios.json"))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("this test shows nothing: it has found %d scenarios", len(all))
	}
	return all
}

// Each client does what the scenarios say, over a network that loses, refuses, delays and holds
// answers, and a server that is killed and started again.
func TestClients(t *testing.T) {
	t.Parallel() // it waits for processes
	runScenarios(t, false)
}

// Those scenarios that wait for the ends of leases.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	runScenarios(t, true)
}

func runScenarios(t *testing.T, slow bool) {
	all := readScenarios(t)
	forEachClient(t, func(t *testing.T, command []string) {
		c := newClientRun(t, command)
		for i, s := range all {
			if s.Slow != slow {
				continue
			}
			t.Run(s.Name, func(t *testing.T) {
				outer := c.t
				c.t, c.topic = t, fmt.Sprint("s", i)
				defer func() { c.t = outer }()
				defer c.network.forget()
				c.start()
				defer c.end()
				at := 0
				defer func() {
					if t.Failed() {
						t.Logf("in step %d of %d", at, len(s.Steps))
					}
				}()
				c.step(&scenarioStep{Open: &map[string]any{}})
				for i := range s.Steps {
					at = i + 1
					c.step(&s.Steps[i])
				}
			})
		}
	})
}
