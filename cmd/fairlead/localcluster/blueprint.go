package localcluster

// blueprint is what a cluster is made of.
type blueprint struct {
	title   string // for people
	agents  []agent
	control []string // flags of the control agents
	cells   []cellPlan
	tenants []Tenant
	workers []string // the cells that have a worker process each
}

// cellPlan is a cell, and whom it is for: pooled unless it is dedicated.
type cellPlan struct {
	name      string
	dedicated bool
}

// Tenant is a tenant of the cluster, and the cell that it has to be in: any when empty.
type Tenant struct{ Name, Cell string }

// The cells of the cluster that loses its leaders.
const (
	cellA = "cell-a"
	cellB = "cell-b"
)

// Tenants lists the tenants of the cluster that loses its leaders.
func Tenants() []Tenant { return []Tenant{{"acme", cellA}, {"globex", cellB}} }

// failovers is the cluster that loses its leaders.
func failovers() blueprint {
	return blueprint{
		title: "A cluster on this machine: 3 control agents, cell-a with 3 replicas, cell-b with 1, a gateway and 2 workers.",
		agents: []agent{
			{Name: "control-1", Role: roleControl},
			{Name: "control-2", Role: roleControl},
			{Name: "control-3", Role: roleControl},
			{Name: "cell-a-1", Role: roleCell, Cell: cellA},
			{Name: "cell-a-2", Role: roleCell, Cell: cellA},
			{Name: "cell-a-3", Role: roleCell, Cell: cellA},
			{Name: "cell-b-1", Role: roleCell, Cell: cellB},
			{Name: "gateway-1", Role: roleGateway},
		},
		cells: []cellPlan{{name: cellA}, {name: cellB}}, tenants: Tenants(), workers: []string{cellA, cellB},
	}
}

// logs are the logs of the cluster: control's, which has no name, and each cell's.
func (b blueprint) logs() []string {
	logs := []string{""}
	for _, c := range b.cells {
		logs = append(logs, c.name)
	}
	return logs
}
