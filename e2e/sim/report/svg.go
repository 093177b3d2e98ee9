package report

import (
	"encoding/xml"
	"math/bits"
	"strconv"
	"strings"
)

// px is a length in hundredths of a pixel. Pictures are computed in whole numbers, so that every machine draws the same bytes.
type px int64

// pixel is one.
const pixel px = 100

// String returns the length in pixels, with the decimals that it has.
func (p px) String() string {
	sign := ""
	if p < 0 {
		sign, p = "-", -p
	}
	s := sign + strconv.FormatInt(int64(p/pixel), 10)
	if rest := int(p % pixel); rest > 0 {
		s += strings.TrimRight("."+strconv.Itoa(rest/10)+strconv.Itoa(rest%10), "0")
	}
	return s
}

// scaled returns part / whole of length, rounded down. part is 0 to whole.
func scaled(part, whole int64, length px) px {
	if whole <= 0 || part <= 0 {
		return 0
	}
	if part >= whole {
		return length
	}
	hi, lo := bits.Mul64(uint64(part), uint64(length))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return px(q)
}

// style are the colours of all pictures, on light and on dark: a picture has its own background, so that it does not depend on the page's. The
// first eight are told apart by whoever does not see all colours, in light and in shade; the ninth is for whatever is left.
const style = `text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.title{font-size:19px;font-weight:600}.head{font-size:15px;font-weight:600}.soft{fill:#59636e}.small{font-size:12px}.bold{font-weight:600}
.bg{fill:#fff}.panel{fill:#f3f5f7}.grid{stroke:#8b949e;stroke-opacity:.28;fill:none}.axis{stroke:#8b949e;fill:none}.mark{stroke:#1f2328;stroke-dasharray:3 3;fill:none}
.f0{fill:#e8a33d}.f1{fill:#1f6fd6}.f2{fill:#1b9e77}.f3{fill:#c2479b}.f4{fill:#7a5cc4}.f5{fill:#4bb4d8}.f6{fill:#d1442f}.f7{fill:#8a8f2a}.f8{fill:#9aa4ae}
.l0{stroke:#c98417}.l1{stroke:#1f6fd6}.l2{stroke:#1b9e77}.l3{stroke:#c2479b}.l4{stroke:#7a5cc4}.l5{stroke:#2f9cc4}.l6{stroke:#d1442f}.l7{stroke:#8a8f2a}.l8{stroke:#9aa4ae}
.line{fill:none;stroke-width:2.5;stroke-linejoin:round}.faint{fill-opacity:.35}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9da7b1}.bg{fill:#0d1117}.panel{fill:#171d26}.mark{stroke:#e6edf3}
.f0{fill:#e3a84a}.f1{fill:#4b9bff}.f2{fill:#35c295}.f3{fill:#e27bbf}.f4{fill:#a48bf0}.f5{fill:#79cdea}.f6{fill:#f4705c}.f7{fill:#c3c85a}.f8{fill:#6e7681}
.l0{stroke:#e3a84a}.l1{stroke:#4b9bff}.l2{stroke:#35c295}.l3{stroke:#e27bbf}.l4{stroke:#a48bf0}.l5{stroke:#79cdea}.l6{stroke:#f4705c}.l7{stroke:#c3c85a}.l8{stroke:#6e7681}}`

// Colours by their number in the style.
const (
	colours     = 8 // that can be told apart
	colourOther = 8
)

// picture is an SVG while it is being drawn.
type picture struct {
	body          strings.Builder
	width, height px
}

// drawing returns the whole document: title and description are for whoever cannot see it.
func (p *picture) drawing(title, description string) []byte {
	var b strings.Builder
	w, h := p.width.String(), p.height.String()
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" width="` + w + `" height="` + h + `" viewBox="0 0 ` + w + " " + h +
		`" role="img" aria-labelledby="t d">` + "\n")
	b.WriteString(`<title id="t">` + escaped(title) + "</title>\n" + `<desc id="d">` + escaped(description) + "</desc>\n")
	b.WriteString("<style>" + style + "</style>\n")
	b.WriteString(`<rect class="bg" width="` + w + `" height="` + h + `"/>` + "\n")
	b.WriteString(p.body.String())
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// Where a text stands to its point.
const (
	anchorStart  = ""
	anchorMiddle = "middle"
	anchorEnd    = "end"
)

func (p *picture) text(x, y px, class, anchor, s string) {
	p.body.WriteString(`<text x="` + x.String() + `" y="` + y.String() + `"`)
	if class != "" {
		p.body.WriteString(` class="` + class + `"`)
	}
	if anchor != "" {
		p.body.WriteString(` text-anchor="` + anchor + `"`)
	}
	p.body.WriteString(">" + escaped(spaced(s)) + "</text>\n")
}

func (p *picture) rect(x, y, w, h px, class string) {
	p.body.WriteString(`<rect class="` + class + `" x="` + x.String() + `" y="` + y.String() + `" width="` + w.String() + `" height="` + h.String() +
		`"/>` + "\n")
}

// path draws d, if there is anything in it; the title is shown to who points at it.
func (p *picture) path(class, d, title string) {
	if d == "" {
		return
	}
	p.body.WriteString(`<path class="` + class + `" d="` + d + `"`)
	if title == "" {
		p.body.WriteString("/>\n")
		return
	}
	p.body.WriteString("><title>" + escaped(spaced(title)) + "</title></path>\n")
}

func (p *picture) line(x1, y1, x2, y2 px, class string) {
	p.path(class, "M"+x1.String()+" "+y1.String()+"L"+x2.String()+" "+y2.String(), "")
}

// box is the path of a rectangle.
func box(x, y, w, h px) string {
	return "M" + x.String() + " " + y.String() + "h" + w.String() + "v" + h.String() + "h" + (-w).String() + "z"
}

// escaped returns s for the text of an element: it never ends one, and has no character that XML does not allow.
func escaped(s string) string {
	var b strings.Builder
	// A builder takes all.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

// width of a text, roughly: enough to put one after another.
func (p *picture) after(x px, s string, bold bool) px {
	each := 67 * pixel / 10
	if bold {
		each = 72 * pixel / 10
	}
	return x + px(len([]rune(s)))*each
}
