package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	yaml "github.com/knadh/koanf/parsers/yaml"
	env "github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

const envPrefix = "RAFTQ_"

// notServe are variables with our prefix that other commands read; those that
// work sets are none of serve's either.
var notServe = []string{"endpoints"}

// configKey is the flag that names the file; it cannot stand in the file.
const configKey = "config"

// loadSettings returns the value of every flag of fs as text: the flag if it
// was given, else its RAFTQ_ variable, else the key of the same name in the
// YAML file, else the flag's default. What no flag is named after is an error
// that says where it stands.
func loadSettings(fs *pflag.FlagSet, environ []string) (map[string]string, error) {
	settings, _, err := settingsAndOrigins(fs, environ)
	return settings, err
}

// originDefault is the origin of a setting that nobody gave.
const originDefault = "default"

// settingsAndOrigins is loadSettings, and says where each value comes from: the
// flag, the variable or the file by name, or originDefault.
func settingsAndOrigins(fs *pflag.FlagSet, environ []string) (settings, origins map[string]string, err error) {
	vars := koanf.New(".")
	if err := vars.Load(env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(k, v string) (string, any) {
			key := keyOfVariable(k)
			if slices.Contains(notServe, key) || isWorkVariable(k) {
				return "", nil
			}
			return key, v
		},
	}), nil); err != nil {
		return nil, nil, fmt.Errorf("environment: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(vars.All())) {
		if !isSetting(fs, key) {
			return nil, nil, fmt.Errorf("environment: unknown key %s", variableOfKey(key))
		}
	}

	k, inFile := koanf.New("."), map[string]bool{}
	path := vars.String(configKey)
	if fs.Changed(configKey) {
		path = fs.Lookup(configKey).Value.String()
	}
	if path != "" {
		if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		if _, err := takeLignum(fs, k); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, key := range slices.Sorted(maps.Keys(k.All())) {
			if !isSetting(fs, key) || key == configKey {
				return nil, nil, fmt.Errorf("%s: unknown key %q", path, key)
			}
			inFile[key] = true
		}
	}
	if err := k.Merge(vars); err != nil {
		return nil, nil, err
	}
	if err := loadDisqueConf(fs, k); err != nil {
		return nil, nil, err
	}
	given := k.Copy() // of all but flags
	// As text: koanf would read a flag by the name of its type.
	asText := func(key, value string) (string, any) { return key, value }
	if err := k.Load(posflag.ProviderWithValue(fs, ".", k, asText), nil); err != nil {
		return nil, nil, err
	}
	settings, origins = map[string]string{}, map[string]string{}
	for key, value := range k.All() {
		text, err := settingText(value)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", key, err)
		}
		settings[key] = text
		switch {
		case fs.Changed(key):
			origins[key] = "--" + key
		case vars.Exists(key):
			origins[key] = variableOfKey(key)
		case inFile[key]:
			origins[key] = path
		case given.Exists(key):
			origins[key] = "disque-conf"
		default:
			origins[key] = originDefault
		}
	}
	return settings, origins, nil
}

const disqueConfKey = "disque-conf"

// loadDisqueConf sets what a disque.conf says and neither a flag, nor a variable,
// nor the YAML file does.
func loadDisqueConf(fs *pflag.FlagSet, k *koanf.Koanf) error {
	f := fs.Lookup(disqueConfKey)
	if f == nil {
		return nil
	}
	path := k.String(disqueConfKey)
	if f.Changed {
		path = f.Value.String()
	}
	if path == "" {
		return nil
	}
	d, err := readDisqueConf(path)
	if err != nil {
		return fmt.Errorf("%s: %w", disqueConfKey, err)
	}
	for key, value := range d.settings {
		if k.Exists(key) || fs.Changed(key) {
			continue
		}
		if err := k.Set(key, value); err != nil {
			return fmt.Errorf("%s: %s: %w", disqueConfKey, key, err)
		}
	}
	return nil
}

// isSetting: cobra's own flag is none.
func isSetting(fs *pflag.FlagSet, key string) bool { return key != "help" && fs.Lookup(key) != nil }

// settingText is a value of the file as if it stood in a flag. A list stands
// for its items joined by commas.
func settingText(value any) (string, error) {
	switch v := value.(type) {
	case []any:
		var items []string
		for _, item := range v {
			text, err := settingText(item)
			if err != nil {
				return "", err
			}
			items = append(items, text)
		}
		return strings.Join(items, ","), nil
	case map[string]any:
		return "", fmt.Errorf("a value is expected, not a mapping")
	case nil:
		return "", nil
	default:
		return fmt.Sprint(v), nil
	}
}

// keyOfVariable: RAFTQ_DATA_DIR is data-dir.
func keyOfVariable(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", "-")
}

func variableOfKey(key string) string {
	return envPrefix + strings.ReplaceAll(strings.ToUpper(key), "-", "_")
}
