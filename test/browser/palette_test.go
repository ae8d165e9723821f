package browser

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"slices"
	"testing"
)

// small is a picture with the colours of it that are most frequent, in place of all: a page has few, and the picture is a third as large.
func small(picture []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	area, counts := full.Bounds(), map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) }
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	const most = 64
	var palette color.Palette
	for _, c := range frequent[:min(len(frequent), most)] {
		palette = append(palette, c)
	}
	places := map[color.RGBA]uint8{}
	reduced := image.NewPaletted(area, palette)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			c := at(x, y)
			place, known := places[c]
			if !known {
				place = uint8(palette.Index(c))
				places[c] = place
			}
			reduced.SetColorIndex(x, y, place)
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, reduced)
	return b.Bytes(), err
}

// A picture with few colours stays as it is, pixel by pixel.
func TestSmall_KeepsWhatAPictureShows(t *testing.T) {
	full := image.NewRGBA(image.Rect(0, 0, 40, 30))
	for y := range 30 {
		for x := range 40 {
			full.Set(x, y, color.RGBA{uint8(x / 10 * 60), uint8(y / 10 * 80), 200, 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, full); err != nil {
		t.Fatal(err)
	}
	data, err := small(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	reduced, err := png.Decode(bytes.NewReader(data))
	if err != nil || reduced.Bounds() != full.Bounds() {
		t.Fatalf("%v: %v", err, reduced)
	}
	for y := range 30 {
		for x := range 40 {
			if got, want := color.RGBAModel.Convert(reduced.At(x, y)), full.At(x, y); got != want {
				t.Fatalf("at %d, %d: %v instead of %v", x, y, got, want)
			}
		}
	}
}
