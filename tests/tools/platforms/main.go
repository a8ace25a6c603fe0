// Platforms checks that a module compiles for platforms other than this one:
//
//	platforms linux/arm windows/amd64 …
//
// It checks the types of every package and of its tests, in the current folder
// and below, and of all that they import. It makes no code: the compiler of this
// platform has done that for nearly all of the same files, and a cold build for
// each platform takes minutes. cgo is off.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	failed := false
	for _, platform := range os.Args[1:] {
		fmt.Println("check", platform)
		for _, err := range check(".", platform) {
			fmt.Fprintln(os.Stderr, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check returns what does not compile in dir and below.
func check(dir, platform string) (all []error) {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return []error{fmt.Errorf("%q is not of the form linux/arm64", platform)}
	}
	pkgs, err := packages.Load(&packages.Config{
		// Dependencies come from their source: to take them compiled would be to
		// compile them.
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes,
		Dir:   dir,
		Env:   append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch),
		Tests: true,
	}, "./...")
	if err != nil {
		return []error{fmt.Errorf("%s: %w", platform, err)}
	}
	if len(pkgs) == 0 {
		return []error{fmt.Errorf("%s: no packages", platform)}
	}
	packages.Visit(pkgs, nil, func(p *packages.Package) {
		for _, err := range p.Errors {
			all = append(all, fmt.Errorf("%s: %w", platform, err))
		}
	})
	return all
}
