// Command name says the name of its build. With an argument it says that it
// has started first, and goes on when its input ends.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/kubewake/kubewake/internal/buildid"
)

// flag is set by -ldflags=-X.
var flag = "no flag"

func main() {
	if len(os.Args) > 1 {
		fmt.Println("started", flag)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	fmt.Println(buildid.Get())
}
