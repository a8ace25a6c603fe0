package main

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"
	"os"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	width  = 7 * vg.Inch
	height = 4.2 * vg.Inch
	margin = 10
)

// style distinguishes lines, even without colours and where one line covers another.
type style struct {
	colour color.Color
	dashes []vg.Length
	shape  vgdraw.GlyphDrawer
}

var styles = []style{
	{color.RGBA{0xd5, 0x5e, 0x00, 0xff}, nil, vgdraw.CircleGlyph{}},
	{color.RGBA{0xd5, 0x5e, 0x00, 0xff}, []vg.Length{5, 4}, vgdraw.RingGlyph{}},
	{color.RGBA{0x00, 0x72, 0xb2, 0xff}, nil, vgdraw.SquareGlyph{}},
	{color.RGBA{0x00, 0x9e, 0x73, 0xff}, []vg.Length{8, 3}, vgdraw.TriangleGlyph{}},
	{color.RGBA{0x80, 0x60, 0xa0, 0xff}, []vg.Length{2, 3}, vgdraw.PlusGlyph{}},
	{color.RGBA{0x40, 0x40, 0x40, 0xff}, []vg.Length{6, 2, 2, 2}, vgdraw.CrossGlyph{}},
}

// limitStyle is that of a limit beside the programs.
var limitStyle = style{color.Gray{0x99}, []vg.Length{1, 2}, nil}

// newPlot returns an empty plot on white, which looks the same in both themes of GitHub.
func newPlot(title string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = 13
	p.Title.Padding = 8
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font.Size = 11
		a.Tick.Label.Font.Size = 10
		a.Padding = 4
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Size = 10.5
	p.Legend.XOffs, p.Legend.Padding, p.Legend.ThumbnailWidth = 8, 2, 30
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xdd}, color.Gray{0xdd}
	p.Add(grid)
	return p
}

// line adds a line to a plot.
func line(p *plot.Plot, name string, points plotter.XYs, s style, marked bool) error {
	l, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	l.LineStyle = vgdraw.LineStyle{Color: s.colour, Width: 1.8, Dashes: s.dashes}
	p.Add(l)
	if !marked {
		p.Legend.Add(name, l)
		return nil
	}
	dots.GlyphStyle = vgdraw.GlyphStyle{Color: s.colour, Radius: 3.2, Shape: s.shape}
	p.Add(dots)
	p.Legend.Add(name, l, dots)
	return nil
}

// decades are ticks at each power of ten and, if these are few, smaller ticks between
// them.
func decades(label func(float64) string) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) (ticks []plot.Tick) {
		for v := math.Pow(10, math.Floor(math.Log10(low))); v <= high*1.001; v *= 10 {
			ticks = append(ticks, plot.Tick{Value: v, Label: label(v)})
			for n := 2.0; n < 10 && high/low < 1e5; n++ {
				ticks = append(ticks, plot.Tick{Value: n * v})
			}
		}
		return ticks
	})
}

// save writes the plot as SVG with text as text. Most machines do not have the font of
// the layout, so the SVG also names others of the same widths.
func save(p *plot.Plot, path string) error {
	canvas := vgsvg.New(width, height)
	paper := vgdraw.New(canvas)
	paper.SetColor(p.BackgroundColor)
	paper.Fill(paper.Rectangle.Path())
	p.Draw(vgdraw.Crop(paper, margin, -2*margin, margin, -margin))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	const (
		family = "font-family:Liberation Sans"
		head   = `xmlns:xlink="http://www.w3.org/1999/xlink">`
	)
	if !strings.Contains(b.String(), head) || !strings.Contains(b.String(), family) {
		return fmt.Errorf("%s: the SVG has another form than was expected", path)
	}
	text := strings.NewReplacer(
		head, head+"\n<title>"+html.EscapeString(p.Title.Text)+"</title>",
		family, family+",Arial,Helvetica,sans-serif",
	).Replace(b.String())
	return os.WriteFile(path, []byte(text), 0o644)
}
