package migrate

import "github.com/fairlead/fairlead/cell"

// Whole is a share of everything, in thousandths.
const Whole = 1000

// Split divides what a tenant is promised between two cells: the target has thousandths of each rate, credit and count, the source what is left. The sums are
// never above p.
func Split(p cell.TenantPolicy, thousandths int) (source, target cell.TenantPolicy) { return p, p }

// Shares returns how much of a tenant's rates, credit, starts and running_max the target has now, in thousandths, and whether the classes are or may be
// apart: only then is anything split.
func Shares(r *Record) (target int, apart bool) { return 0, false }

// Policies returns what each of the two cells is to be told of the tenant's promise, and whether it is to be told at all: a cell that is being emptied is not.
func (r *Record) Policies(p cell.TenantPolicy) (source, target cell.TenantPolicy, toSource, toTarget bool) {
	return p, p, true, true
}
