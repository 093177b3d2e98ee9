package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// tokensHeader is the first line of a token trace.
var tokensHeader = []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}

// tokensMax bounds the tokens of a request on either side.
const tokensMax = 100_000

// microTokens is a token in micro-units.
const microTokens cell.Cost = 1_000_000

func readTokens(in io.Reader, t *Trace, o Options) error {
	if o.Tenants == 0 {
		o.Tenants = tenantsDefault
	}
	if o.Rates == (TokenRates{}) {
		o.Rates = TokenRates{Context: 100 * time.Microsecond, Generated: 20 * time.Millisecond}
	}
	reader := csv.NewReader(in)
	reader.ReuseRecord = true
	header, err := reader.Read()
	if err != nil {
		return csvError(err, FormTokens)
	}
	if !slices.Equal(header, tokensHeader) {
		return at(FormTokens, 1, 1, "", wrong("begin with "+strings.Join(tokensHeader, ","), "the header is %.80q", strings.Join(header, ",")))
	}
	deal := newZipf(o.Seed, o.Tenants)
	var start time.Time
	for {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return csvError(err, FormTokens)
		}
		when, tokens, err := parseRequest(fields, reader)
		if err != nil {
			return err
		}
		if start.IsZero() {
			start = when
		}
		if when.Before(start) || when.Sub(start) > TimeMax {
			line, col := reader.FieldPos(0)
			return at(FormTokens, line, col, tokensHeader[0], wrong("sort the trace by time", "is before the first, or a hundred years after it"))
		}
		service := time.Duration(tokens[0])*o.Rates.Context + time.Duration(tokens[1])*o.Rates.Generated
		if err := t.add(Job{
			Traits: deal.next(), ID: len(t.Jobs), Arrival: when.Sub(start), Service: max(service, time.Microsecond),
			Actual: max(1, tokens[0]+tokens[1]) * microTokens,
		}); err != nil {
			return err
		}
	}
	t.Unit = UnitTokens
	t.note("the trace names no tenants: each request is dealt to one of %d by the seed %d, tenant k with a chance proportional to 1/k", o.Tenants, o.Seed)
	t.note("a request costs its tokens, which it does not declare, and runs %v for each token of the context and %v for each generated",
		o.Rates.Context, o.Rates.Generated)
	return nil
}

// parseRequest returns when a request came, and its tokens on either side.
func parseRequest(fields []string, reader *csv.Reader) (time.Time, [2]cell.Cost, error) {
	var tokens [2]cell.Cost
	when, err := time.Parse("2006-01-02 15:04:05.999999999", fields[0])
	if err != nil {
		line, col := reader.FieldPos(0)
		return when, tokens, at(FormTokens, line, col, tokensHeader[0],
			wrong("write 2006-01-02 15:04:05.0000000", "%.40q is no time", fields[0]))
	}
	for i := range tokens {
		n, err := number(fields[i+1], 0, tokensMax)
		if err != nil {
			line, col := reader.FieldPos(i + 1)
			return when, tokens, at(FormTokens, line, col, tokensHeader[i+1], err)
		}
		tokens[i] = cell.Cost(n)
	}
	return when, tokens, nil
}

// zipf deals jobs out to tenants: tenant k with a chance proportional to 1/k. The weights are whole numbers, so that a seed gives the same
// everywhere.
type zipf struct {
	rng     *rand.Rand
	upTo    []uint64 // sums of weights
	tenants []*Traits
}

func newZipf(seed uint64, tenants int) *zipf {
	const scale = 1 << 40
	z := &zipf{rng: rand.New(rand.NewPCG(seed, 0)), upTo: make([]uint64, tenants), tenants: make([]*Traits, tenants)}
	width := len(strconv.Itoa(tenants))
	sum := uint64(0)
	for i := range tenants {
		sum += scale / uint64(i+1)
		z.upTo[i] = sum
		name := fmt.Sprintf("tenant-%0*d", width, i+1)
		z.tenants[i] = &Traits{Tenant: name, Cohort: name, Class: cell.ClassInteractive, Operation: "generate"}
	}
	return z
}

func (z *zipf) next() *Traits {
	x := z.rng.Uint64N(z.upTo[len(z.upTo)-1])
	return z.tenants[sort.Search(len(z.upTo), func(i int) bool { return z.upTo[i] > x })]
}
