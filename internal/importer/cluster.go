package importer

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// primaries returns the clients of the primaries of a cluster.
func primaries(ctx context.Context, cluster *redis.ClusterClient) ([]redis.Cmdable, error) {
	var mu sync.Mutex
	var out []redis.Cmdable
	err := cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		out = append(out, c)
		return nil
	})
	return out, err
}

// stagingKey returns the key of the staging hash of a set. The key is in the hash slot of the set,
// so that one script may change both.
func stagingKey(set string) string {
	switch {
	case hashTag(set) != set:
		return "punctual-import:" + set
	case !strings.Contains(set, "}"):
		return "punctual-import-of:{" + set + "}"
	}
	// The braces of this key make no hash tag, so any short tag of the same slot is put in front.
	want := slotOf(set)
	for n := 0; ; n++ {
		if tag := strconv.Itoa(n); slotOf(tag) == want {
			return "punctual-import-at:{" + tag + "}:" + set
		}
	}
}

// hashTag returns the part of a key that decides its slot: the text between the first { and the
// next }, or the whole key when there is no such text.
func hashTag(key string) string {
	_, behind, ok := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(behind, "}")
	if !ok || !closed || tag == "" {
		return key
	}
	return tag
}

// slotOf returns the hash slot of a key in Redis Cluster: CRC-16/XMODEM of its hash tag, modulo
// 16384 (Redis Cluster specification, appendix A).
func slotOf(key string) int {
	crc := uint16(0)
	for _, b := range []byte(hashTag(key)) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
