package main

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A day of bookmarks, with time idleScale times as fast.
const (
	idleBookmarks = 24 * 60
	idleScale     = 2000
)

// idleDay is the cost of a day of bookmarks.
type idleDay struct {
	durable bool
	written int64
}

func (d idleDay) form() string {
	if d.durable {
		return "with a durable handler"
	}
	return "with a plain handler"
}

func (b *streamBench) idle(ctx context.Context, res *streamResults) error {
	day := &feed{}
	for i := range idleBookmarks {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(firstRV + 1 + i)}}
		frame, err := watchFrame(watch.Bookmark, p)
		if err != nil {
			return err
		}
		day.frames = append(day.frames, frame)
	}
	for _, k := range []kind{streamPlain, streamDurable} {
		s := streamSpec{Kind: k, Scale: idleScale, Settle: time.Second}
		r, err := b.run(ctx, s, day, pace{events: idleBookmarks, each: 1, every: time.Minute / idleScale})
		if err != nil {
			return err
		}
		res.idle = append(res.idle, idleDay{k == streamDurable, r.Written})
	}
	return nil
}
