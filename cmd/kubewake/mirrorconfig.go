package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/labels"
)

// keyTypes is the config file's key for the types. The others are names of flags.
const keyTypes = "types"

// inConfig says whether the config file may set a flag.
func inConfig(f *pflag.Flag) bool {
	return f != nil && !f.Hidden && f.Name != "config" && f.Name != "help"
}

// setting is a key of a config file and its values.
type setting struct {
	key    string
	line   int
	list   bool // of values; otherwise it is one
	values []*yaml.Node
}

// readConfig reads a config file. Errors say in which line.
func readConfig(path string) (all []setting, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w (--config)", err)
	}
	wrong := func(at *yaml.Node, format string, args ...any) error {
		return fmt.Errorf("%s:%d: %s", path, at.Line, fmt.Sprintf(format, args...))
	}
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(&more); err == nil {
		return nil, wrong(&more, "a second document")
	} else if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, wrong(root, "a config file has lines of the form KEY: VALUE")
	}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		s := setting{key: key.Value, line: key.Line, values: []*yaml.Node{value}}
		if slices.ContainsFunc(all, func(other setting) bool { return other.key == s.key }) {
			return nil, wrong(key, "%s is there twice", s.key)
		}
		if s.list = value.Kind == yaml.SequenceNode; s.list {
			s.values = value.Content
		}
		for _, v := range s.values {
			if v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
				return nil, wrong(v, "%s: the value must be text, a number, true or false", s.key)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// configure sets the flags that the command line does not give to the values in the file
// at path. It returns the types, with those on the command line before the file's.
func configure(path string, flags *pflag.FlagSet, args []string) (types []string, err error) {
	all, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	types = slices.Clone(args)
	for _, s := range all {
		wrong := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %s: %s", path, s.line, s.key, fmt.Sprintf(format, args...))
		}
		if s.key == keyTypes {
			if !s.list {
				return nil, wrong("it needs a list, such as [pods, configmaps]")
			}
			if len(args) > 0 {
				continue
			}
			for _, v := range s.values {
				types = append(types, v.Value)
			}
			continue
		}
		f := flags.Lookup(s.key)
		if !inConfig(f) {
			return nil, wrong("there is no such key; there are %s and the flags of kubewake mirror", keyTypes)
		}
		// -n on the command line asks for one namespace, even if the file asks for all.
		given := f.Changed || f.Name == "all-namespaces" && flags.Changed("namespace")
		if err := s.set(f, given); err != nil {
			return nil, wrong("%v", err)
		}
	}
	return types, nil
}

// set gives a flag the value, unless the command line has given it one. A value that the
// flag does not accept is an error in any case.
func (s setting) set(f *pflag.Flag, given bool) error {
	slice, many := f.Value.(pflag.SliceValue)
	if s.list && !many {
		return errors.New("it takes one value, not a list")
	}
	if many {
		if given {
			return nil
		}
		values := []string{}
		for _, v := range s.values {
			values = append(values, v.Value)
		}
		return slice.Replace(values)
	}
	v, was := s.values[0], f.Value.String()
	if f.Value.Type() == "bool" && v.Tag != "!!bool" {
		return fmt.Errorf("the value must be true or false, not %q", v.Value)
	}
	err := f.Value.Set(v.Value)
	if err == nil && given {
		err = f.Value.Set(was)
	}
	return err
}

// wanted says what a mirror keeps. It changes when the config file is read again.
type wanted struct {
	types     []string
	all       bool
	namespace string // of namespaced types, unless all is true
	selector  string
}

// wants returns what the flags and types ask for.
func (m *mirror) wants(types []string) (w wanted, err error) {
	w = wanted{all: m.all, selector: m.selector}
	for _, arg := range types {
		w.types = append(w.types, strings.Split(arg, ",")...) // as kubectl takes them
	}
	if _, err := labels.Parse(w.selector); err != nil {
		return w, fmt.Errorf("the selector cannot be parsed (-l): %w", err)
	}
	if len(w.types) == 0 {
		return w, fmt.Errorf("there are no types: name them in %s of the file, or as arguments (--config)", keyTypes)
	}
	if slices.Contains(w.types, "") {
		return w, errors.New("the name of a type is empty; give one such as pods")
	}
	if w.all {
		return w, nil
	}
	if w.namespace, _, err = m.flags.ToRawKubeConfigLoader().Namespace(); err != nil {
		return w, err
	}
	if len(content.IsDNS1123Label(w.namespace)) > 0 {
		return w, fmt.Errorf("%q cannot be the name of a namespace: it may not contain anything but small letters, "+
			"digits, and hyphens between them, and has at most 63 (-n)", w.namespace)
	}
	return w, nil
}

func (w wanted) equal(o wanted) bool {
	return slices.Equal(w.types, o.types) && w.all == o.all && w.namespace == o.namespace && w.selector == o.selector
}

// whereFlags are the flags that a reload may change.
var whereFlags = []string{"all-namespaces", "namespace", "selector"}

// again reads the config file once more. given are the flags with which the process was
// started, including those that the file set.
func (m *mirror) again(given *pflag.FlagSet, args []string) (wanted, error) {
	cmd, next := mirrorCommand(m.streams)
	flags := cmd.Flags()
	var err error
	given.VisitAll(func(f *pflag.Flag) {
		to := flags.Lookup(f.Name)
		if to == nil || !f.Changed {
			return
		}
		from, many := f.Value.(pflag.SliceValue)
		if many {
			err = errors.Join(err, to.Value.(pflag.SliceValue).Replace(from.GetSlice()))
		} else {
			err = errors.Join(err, to.Value.Set(f.Value.String()))
		}
		to.Changed = true
	})
	if err != nil {
		return wanted{}, err
	}
	types, err := configure(m.configFile, flags, args)
	if err != nil {
		return wanted{}, err
	}
	var fixed []string
	flags.VisitAll(func(f *pflag.Flag) {
		if was := given.Lookup(f.Name); was != nil && inConfig(f) && !slices.Contains(whereFlags, f.Name) &&
			f.Value.String() != was.Value.String() {
			fixed = append(fixed, fmt.Sprintf("%s is %s, not %s", f.Name, shownFlag(was), shownFlag(f)))
		}
	})
	if len(fixed) > 0 {
		return wanted{}, fmt.Errorf("only a new start can change this: %s", strings.Join(fixed, "; "))
	}
	return next.wants(types)
}

func shownFlag(f *pflag.Flag) string {
	if text := f.Value.String(); text != "" {
		return text
	}
	return `""`
}
