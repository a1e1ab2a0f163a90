package health

import (
	"strings"
	"testing"

	"github.com/punctualmq/punctual"
	"github.com/redis/go-redis/v9"
)

// P1: servers together have the class of the weakest one, and classOf names what would give a
// better class.
func TestClassOfServers(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	always := primary{info: map[string]string{"redis_version": "7.2.0", "aof_enabled": "1"}, config: map[string]string{"appendfsync": "always"}}
	everysec := primary{info: always.info, config: map[string]string{"appendfsync": "everysec"}}
	hidden := primary{info: always.info}
	for name, c := range map[string]struct {
		found []primary
		asked punctual.Durability
		class punctual.Durability
		why   string
	}{
		"always":                  {[]primary{always}, "", punctual.Fsync, ""},
		"one of two":              {[]primary{always, everysec}, "", punctual.Volatile, "appendfsync to always"},
		"not to be read":          {[]primary{hidden}, "", punctual.Volatile, "CONFIG GET"},
		"replicated, no replicas": {[]primary{always}, punctual.Replicated, punctual.Fsync, "at least 1 replicas"},
	} {
		o := &Options{Durability: c.asked}
		got := classOf(client, c.found, o)
		if got.durability != c.class || !strings.Contains(got.why, c.why) {
			t.Errorf("P1: %s: class %q because %q; want %q with %q", name, got.durability, got.why, c.class, c.why)
		}
		if refused := o.refuses(got) != nil; refused != (c.asked == punctual.Replicated) {
			t.Errorf("P1: %s: refused is %v", name, refused)
		}
	}
}
