package main

import (
	"bytes"
	"slices"
	"strings"

	"github.com/liggitt/tabwriter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/kubewake/kubewake/boltstore"
)

// rows prints objects while they are read, some hundred at a time, if they come in the
// order of their keys. If they do not, as from a program's own store with other keys, it
// holds all of them and sorts them.
type rows struct {
	*get
	st      boltstore.State
	held    []*unstructured.Unstructured
	flows   bool // the file is in order
	mixed   bool // it is not
	printer printers.ResourcePrinter
	out     bytes.Buffer
	tabs    *tabwriter.Writer
	list    *lister // nil: the output is no list in JSON or YAML
}

const rowsAtATime = 500

func byKey(a, b *unstructured.Unstructured) int {
	return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
}

func (r *rows) add(u *unstructured.Unstructured) error {
	r.held = append(r.held, u)
	if len(r.held) < rowsAtATime || r.mixed {
		return nil
	}
	if !r.flows && !slices.IsSortedFunc(r.held, byKey) {
		r.mixed = true
		return nil
	}
	r.flows = true
	return r.flush()
}

// end prints the rest.
func (r *rows) end() error {
	slices.SortFunc(r.held, byKey)
	if len(r.held) > 0 || !r.flows {
		if err := r.flush(); err != nil {
			return err
		}
	}
	if r.list == nil {
		return nil
	}
	return r.list.end(r.streams.Out)
}

func (r *rows) flush() error {
	switch {
	case r.list != nil:
		if err := r.list.write(&r.out, r.held); err != nil {
			return err
		}
	case r.output == "name" || len(r.held) == 0:
		if err := r.print(&r.out, r.st, r.held, false); err != nil {
			return err
		}
	default:
		if r.printer == nil {
			// it remembers the widths of columns
			r.printer, r.tabs = r.tables(r.held[0]), printers.GetNewTabWriter(&r.out)
		}
		table, err := tableOf(r.st, r.held, metav1.Now().Time)
		if err != nil {
			return err
		}
		if err := r.printer.PrintObj(table, r.tabs); err != nil {
			return err
		}
		if err := r.tabs.Flush(); err != nil {
			return err
		}
	}
	r.held = nil
	_, err := r.out.WriteTo(r.streams.Out)
	return err
}
