package controlserver

// Leads reports whether this replica serves what only the leader does. It follows the log's leadership by a moment, in both directions.
func (s *Server) Leads() bool { return s.reign.Load() != nil }
