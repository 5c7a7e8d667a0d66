package main

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	yaml "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// lignumKeys are the keys of Lignum's config.yml. Where its clients find it is taken
// from there; the others say how Consul, followers and files are dealt with, which is
// not done here.
var lignumKeys = []string{
	"server.host", "server.port", "server.service-key",
	"consul.host", "consul.port", "consul.service-name", "consul.session-ttl-in-seconds", "consul.session-renewal-ttl-in-seconds",
	"consul.sessionTTL", "consul.sessionRenewalTTL", "consul.lock-delay-in-ms", "consul.leader-election-interval-in-ms",
	"message.initial-size-per-topic", "message.data-dir",
	"follower.healthcheck-interval-in-seconds", "follower.healthcheck-ping-timeout-in-ms", "follower.registration-leader-check-interval-in-seconds",
	"replication.internal-queue-size", "replication.client-timeout-in-ms", "replication.wal-replication-port", "replication.wal-sync-interval-in-sec",
	"wal.queue-size",
}

// takeLignum takes Lignum's keys out of a file, sets what they say and the file does
// not, and returns those that mean nothing here. In the file of another command than
// serve they are unknown keys.
func takeLignum(fs *pflag.FlagSet, k *koanf.Koanf) (ignored []string, err error) {
	if !isSetting(fs, "listen-client") {
		return nil, nil
	}
	host, port := k.String("server.host"), k.String("server.port")
	for _, key := range slices.Sorted(maps.Keys(k.All())) {
		if !slices.Contains(lignumKeys, key) {
			continue
		}
		if key != "server.host" && key != "server.port" {
			ignored = append(ignored, key)
		}
		k.Delete(key)
		if section, _, _ := strings.Cut(key, "."); len(k.Cut(section).Keys()) == 0 {
			k.Delete(section)
		}
	}
	if (host != "" || port != "") && !k.Exists("listen-client") {
		address := net.JoinHostPort(cmp.Or(host, "127.0.0.1"), cmp.Or(port, "8080"))
		if err := k.Set("listen-client", address); err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
	}
	return ignored, nil
}

// lignum returns the file's keys of Lignum's that mean nothing here.
func (r *settingsReader) lignum() []string {
	path := r.settings[configKey]
	if path == "" {
		return nil
	}
	k := koanf.New(".")
	err := k.Load(file.Provider(path), yaml.Parser())
	r.fail(configKey, err)
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	serveFlags(fs)
	ignored, err := takeLignum(fs, k)
	r.fail(configKey, err)
	return ignored
}
