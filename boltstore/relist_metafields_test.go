package boltstore

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// The fields of meta, grouped by the effect of the commit of a staged list.
var (
	// stagedFields describe the new generation and its journal. The stage has them.
	stagedFields = []string{"Generation", "Local", "Degraded", "Items", "Bytes", "Noted", "Indices", "Seq", "Dated"}
	// mergedFields are made of the stage's and the present ones.
	mergedFields = []string{"JournalBytes", "remark"}
	// presentFields may have been written while the list was staged. The commit changes
	// those that a list states in the same way as without a stage.
	presentFields = []string{
		"Source", "APIVersion", "Kind", "Epoch", "Claimed", "ClaimedRight", "ClaimedBy", "Told", "Scope", "Names", "Categories", "Columns",
		"Handlers", "Folded", "NoPlain", "Stamped", "Eras", "Marked", "Marks", "Former", "FormDoubted", "MetadataSize", "changed",
		"ClusterUID", "Server", "FlowSchemaUID", "ServerCA", "ServedForm", "Timeline", "ResourceVersion", "Listed", "NewestPage", "Moved", "Stands", "Restored", "Countless", "Filtered",
		"Confirmed", "ConfirmedBy", "Compared", "ComparedBy", "Differed", "TypeHash", "Transform", "Formed", "Reformed",
	}
)

// TestMetaFieldsOfAStage: each field of meta is declared either as the stage's or as
// unchanged when the list ends. A new field must be added here, and in takeStage if it is
// the stage's.
func TestMetaFieldsOfAStage(t *testing.T) {
	var all []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[sourceMeta]()) {
		all = append(all, f.Name)
	}
	known := slices.Concat(stagedFields, mergedFields, presentFields)
	slices.Sort(all)
	slices.Sort(known)
	if !slices.Equal(all, known) {
		t.Fatalf("meta has the fields\n%q, and known are\n%q", all, known)
	}
	for _, n := range []int{1, 2} {
		live, staged := &sourceMeta{}, &sourceMeta{}
		vary(reflect.ValueOf(live).Elem(), n)
		vary(reflect.ValueOf(staged).Elem(), 3-n)
		m := live.clone()
		m.takeStage(&stage{meta: staged.clone()})
		for want, names := range map[*sourceMeta][]string{staged: stagedFields, live: presentFields} {
			for _, name := range names {
				is, should := reflect.ValueOf(m).Elem().FieldByName(name), reflect.ValueOf(want).Elem().FieldByName(name)
				if is.CanInterface() && !reflect.DeepEqual(is.Interface(), should.Interface()) {
					t.Errorf("%s is %v, and should be %v", name, is, should)
				}
			}
		}
	}
}

// vary sets every field in v to a value derived from n.
func vary(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(n == 1)
	case reflect.String:
		v.SetString(fmt.Sprint(n))
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(n))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		vary(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		vary(v.Index(0), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		vary(key, n)
		vary(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				vary(v.Field(i), n)
			}
		}
	default:
		panic(v.Kind())
	}
}

// TestMetaMergedWithAStage: while a list is staged, blocks of the journal are trimmed.
func TestMetaMergedWithAStage(t *testing.T) {
	m := (&sourceMeta{JournalBytes: 600}).clone()
	staged := &sourceMeta{JournalBytes: 1030, remark: true}
	m.takeStage(&stage{meta: staged, journalBytes: 1000})
	if m.JournalBytes != 630 || !m.remark {
		t.Errorf("journal %d, remark %v", m.JournalBytes, m.remark)
	}
}
