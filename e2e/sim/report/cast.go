package report

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim"
)

// cast says who is in a picture, and in which colour: those with the most work have colours of their own, and the others one together.
type cast struct {
	name   func(*sim.Job) string
	names  []string // that have a colour, by its number
	colour map[string]int
	others int // names beyond those
}

// newCast puts whoever has jobs in the runs in order, those with the most work first.
func newCast(runs []*sim.Run, name func(*sim.Job) string) *cast {
	c := &cast{name: name, colour: map[string]int{}}
	asked := map[string]cell.Cost{}
	var names []string
	for _, run := range runs {
		for i := range run.Records {
			n := name(run.Records[i].Job)
			if _, ok := asked[n]; !ok {
				names = append(names, n)
			}
			asked[n] += run.Records[i].Job.Charge()
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(asked[b], asked[a]) })
	c.names = names
	if len(names) > colours {
		c.names, c.others = names[:colours-1], len(names)-colours+1
	}
	for i, n := range c.names {
		c.colour[n] = i
	}
	return c
}

// of returns the place of a job's name: its colour, or the place after all of them.
func (c *cast) of(j *sim.Job) int {
	if i, ok := c.colour[c.name(j)]; ok {
		return i
	}
	return len(c.names)
}

// places is how many places there are: one for each colour, and one for all others if there are any.
func (c *cast) places() int {
	if c.others > 0 {
		return len(c.names) + 1
	}
	return len(c.names)
}

func (c *cast) label(place int) string {
	if place == len(c.names) {
		return strconv.Itoa(c.others) + " others"
	}
	return cut(plain(c.names[place]), legendRunesMax)
}

// class is the style's name for the colour of a place; kind is f to fill and l for lines.
func (c *cast) class(kind string, place int) string {
	if place == len(c.names) {
		place = colourOther
	}
	return kind + strconv.Itoa(place)
}

// legendRunesMax is how much of a name a legend shows.
const legendRunesMax = 24

// The shape of a legend.
const (
	legendLine  = 20 * pixel
	legendRight = pictureWidth - 24*pixel
)

// legend draws who has which colour, from (x, y) on, and returns how much higher it is than one line.
func (c *cast) legend(p *picture, x, y px) px {
	left, more := x, px(0)
	for i := range c.places() {
		end := p.after(x+18*pixel, c.label(i), false)
		if end > legendRight && x > left {
			end -= x - left
			x = left
			more += legendLine
		}
		p.rect(x, y+more-11*pixel, 12*pixel, 12*pixel, c.class("f", i))
		p.text(x+18*pixel, y+more, "", anchorStart, c.label(i))
		x = end + 16*pixel
	}
	return more
}
