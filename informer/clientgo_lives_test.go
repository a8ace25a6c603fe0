package informer

import (
	"errors"
	"time"
)

// lifeScenarios are about a process that ends and starts again.
var lifeScenarios = []scenario{
	{name: "next life", run: func(s *side) {
		h := s.handler("h")
		s.create("a", "b", "c")
		s.add(h)
		s.run()
		h.take()
		s.end()
		s.delete("b")
		s.modify("a")
		s.begin()
		s.keys("before the start")
		s.add(h)
		s.src.fail(errors.New("no link"), errors.New("no link"))
		s.run()
		s.told("without a link", h)
		s.src.fail(nil, nil)
		after(time.Minute)
		s.state("running")
		s.told("running", h)
	}, differs: []intended{
		{"before the start: store", "", "a@1, b@2, c@3", "Reads work before Run"},
		{"without a link: h is told", "", "add a@1 initial, add b@2 initial, add c@3 initial", "A new handler"},
		{"running: h is told", "add a@5 initial, add c@3 initial", "delete b@4, update a@1 a@5", "A new handler"},
	}},
	{name: "next life without a link", run: func(s *side) {
		s.create("a")
		s.run()
		s.end()
		s.src.fail(errors.New("no link"), errors.New("no link"))
		s.begin()
		s.run()
		after(time.Minute)
		s.note("synced", s.inf.HasSynced())
		s.keys("without a link")
	}, differs: []intended{
		{"without a link: store", "", "a@1", "Reads work before Run"},
	}},
	{name: "next life without a link that need not be fresh", o: Options{MaxStaleness: time.Hour}, run: func(s *side) {
		s.create("a")
		s.run()
		s.end()
		s.src.fail(errors.New("no link"), errors.New("no link"))
		s.begin()
		h := s.handler("h")
		reg := s.add(h)
		s.run()
		s.note("synced", s.inf.HasSynced())
		s.registered("registration", reg)
		s.told("without a link", h)
	}, differs: []intended{
		{"synced", "false", "true", "`HasSynced` waits for the server"},
		{"registration", "false false", "true true", "`HasSynced` waits for the server"},
		{"without a link: h is told", "", "add a@1 initial", "`HasSynced` waits for the server"},
	}},
}

// shownBy are the items of docs/differences.md that other tests show, with the package
// and the test.
var shownBy = map[string]string{
	"`AddIndexers`":                               "boltstore TestIndexAddedInMemory",
	"A handler that is behind":                    "informer TestSlowHandler",
	"A handler that is removed":                   "informer TestRemovedInMidLife",
	"What a program writes":                       "boltstore TestOneWriter",
	"An index function that fails or panics":      "informer TestIndexFunctionFailsOnce",
	"An empty list that is not the server's":      "reflector TestEachAnswer",
	"List options that choose other objects":      "reflector TestOptionsThatChange",
	"Objects are shared and must not be modified": "informer TestMutationDetector",
}
