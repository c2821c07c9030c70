package monitor

import "context"

// Ticks drives a monitor tick by tick instead of by Run. stop releases the locks.
func (m *Monitor) Ticks() (tick func(context.Context), stop func(context.Context) error, err error) {
	fleet, err := m.fleet(m.d, m.clock)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) { m.tick(ctx, fleet) }, fleet.Close, nil
}
