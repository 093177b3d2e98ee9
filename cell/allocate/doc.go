// Package allocate is the scheduler's planning twin: what each tenant will get in the long run of a capacity, given what everybody demands, has
// reserved and may not exceed. It answers before anything runs, and tests hold the running scheduler to it.
//
// It owns the arithmetic of shares. It refuses to know jobs, classes, bursts and credit, which move shares for a while and not in the long run:
// a plan is for one class, or for one cell whose classes do not matter. It reads nothing and measures nothing; demands are given.
//
// # The rule
//
// Amounts are rates: micro-units of cost per second. Three steps, the same as the scheduler's tiers:
//
//  1. Everybody gets its reservation, as far as it demands it; an organization also the part of its own reservation that its tenants'
//     reservations leave. If that is more than the capacity, all reservations shrink by one factor, and what somebody does not demand of
//     its shrunken one keeps the factor nearer to one for the others.
//  2. The spare rest, the borrow pool, is divided by weight: among organizations and tenants without one, then among the tenants of each
//     organization, together with what step 1 left the organization. A reservation is no part of this: it neither adds to a share of the
//     pool nor is set against it.
//  3. Nobody gets more than it demands, or than its limit; what that leaves is divided again by weight among the others, until all of the
//     capacity is given away or nobody wants more. Weight zero shares equally in what no sibling of positive weight wants.
//
// Steps 2 and 3 are weighted max-min fairness by water-filling (D. Bertsekas and R. Gallager, "Data Networks", 2nd edition, section 6.5.2). A
// plan also tells the first pass of step 3 alone, which is what people compute by hand and where a plan and a promise usually part.
//
// # Invariants
//
// The shares add up to the lesser of the capacity and all demands within limits, exactly. No share exceeds its demand or its limit. When the
// reservations fit, no share is below the lesser of its demand and its reservation. Arithmetic is exact: products have 128 bits, and the
// micro-units that a division leaves go to the largest remainders. A share is within a micro-unit of the true one where reservations fit, and
// within one for each sibling where they shrink. The same input gives the same plan; the order of claims decides nothing but who gets such a
// micro-unit.
package allocate
