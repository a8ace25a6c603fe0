package main

import (
	"context"
)

func (b *streamBench) idle(ctx context.Context, res *streamResults) error { return nil }
