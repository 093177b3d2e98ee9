package gateway

import (
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// need is what a procedure asks of its caller.
type need struct {
	open       bool            // nobody is asked who they are
	permission cell.Permission // 0 for any live key
	or         cell.Permission // enough as well; 0 for none
	tenant     bool            // the key must be a tenant's: the procedure acts for it
	stream     bool            // the body is a stream, so its length says nothing
	internal   bool            // for agents alone: refused at the door whatever the key
	atMost     int             // requests of it in flight in this process; 0 for no bound of its own
	bytesMax   int64           // of its body; [RequestBytesMax] when 0
}

// permissions is the whole of who may call what. A procedure that is not here is refused: to add one is a decision.
//
// Health is open because a load balancer has no key and it says no more than that the process serves. Reflection is for any live key:
// it tells only what the published schema tells, but a stranger need not be served streams. Join is open because who joins has nothing yet
// but a token, which control checks; so that guessing tokens costs others nothing, few run at a time and each is small.
var permissions = map[string]need{
	fairleadv1connect.JobServiceSubmitProcedure:      {permission: cell.PermissionSubmit, tenant: true},
	fairleadv1connect.JobServiceSubmitBatchProcedure: {permission: cell.PermissionSubmit, tenant: true},
	fairleadv1connect.JobServiceCancelJobProcedure:   {permission: cell.PermissionSubmit, tenant: true},
	fairleadv1connect.JobServiceRetryJobProcedure:    {permission: cell.PermissionSubmit, tenant: true},
	fairleadv1connect.JobServiceGetJobProcedure:      {permission: cell.PermissionRead, tenant: true},
	fairleadv1connect.JobServiceListJobsProcedure:    {permission: cell.PermissionRead, tenant: true},
	fairleadv1connect.JobServiceWaitJobProcedure:     {permission: cell.PermissionRead, tenant: true},
	fairleadv1connect.JobServiceExplainJobProcedure:  {permission: cell.PermissionRead, tenant: true},

	fairleadv1connect.WorkerServiceLeaseProcedure:  {permission: cell.PermissionWork},
	fairleadv1connect.WorkerServiceReportProcedure: {permission: cell.PermissionWork},

	fairleadv1connect.StatusServiceGetStatusProcedure:    {permission: cell.PermissionOperate},
	fairleadv1connect.StatusServiceCaptureTraceProcedure: {permission: cell.PermissionOperate},

	fairleadv1connect.TenantServiceCreateTenantProcedure: {permission: cell.PermissionAdmin},
	fairleadv1connect.TenantServiceGetTenantProcedure:    {permission: cell.PermissionAdmin},
	fairleadv1connect.TenantServiceListTenantsProcedure:  {permission: cell.PermissionAdmin},
	fairleadv1connect.TenantServiceUpdateTenantProcedure: {permission: cell.PermissionAdmin},
	// Whoever runs the cluster is asked why a tenant waits, and need not be able to change what it is promised.
	fairleadv1connect.TenantServiceExplainTenantProcedure: {permission: cell.PermissionOperate, or: cell.PermissionAdmin},

	fairleadv1connect.OrganizationServiceCreateOrganizationProcedure: {permission: cell.PermissionAdmin},
	fairleadv1connect.OrganizationServiceGetOrganizationProcedure:    {permission: cell.PermissionAdmin},
	fairleadv1connect.OrganizationServiceListOrganizationsProcedure:  {permission: cell.PermissionAdmin},
	fairleadv1connect.OrganizationServiceUpdateOrganizationProcedure: {permission: cell.PermissionAdmin},

	fairleadv1connect.KeyServiceCreateKeyProcedure: {permission: cell.PermissionAdmin},
	fairleadv1connect.KeyServiceListKeysProcedure:  {permission: cell.PermissionAdmin},
	fairleadv1connect.KeyServiceRevokeKeyProcedure: {permission: cell.PermissionAdmin},

	// What the operator looks at, and what empties a cell or follows a plan that can be followed back, is for operators; what changes who is
	// part of the cluster, takes its data out or puts other data in is for admins.
	fairleadv1connect.ClusterServiceGetClusterProcedure:         {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.ClusterServiceListMembersProcedure:        {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.ClusterServiceListPeersProcedure:          {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.ClusterServiceAddPeerProcedure:            {permission: cell.PermissionAdmin},
	fairleadv1connect.ClusterServiceRemovePeerProcedure:         {permission: cell.PermissionAdmin},
	fairleadv1connect.ClusterServiceTransferLeadershipProcedure: {permission: cell.PermissionAdmin},
	fairleadv1connect.ClusterServiceSaveSnapshotProcedure:       {permission: cell.PermissionAdmin},
	fairleadv1connect.ClusterServiceRestoreSnapshotProcedure:    {permission: cell.PermissionAdmin, stream: true},
	fairleadv1connect.ClusterServiceSetFeatureLevelProcedure:    {permission: cell.PermissionAdmin},
	fairleadv1connect.ClusterServiceCreateJoinTokenProcedure:    {permission: cell.PermissionAdmin},

	fairleadv1connect.CellServiceCreateCellProcedure:   {permission: cell.PermissionAdmin},
	fairleadv1connect.CellServiceUpdateCellProcedure:   {permission: cell.PermissionAdmin},
	fairleadv1connect.CellServiceDeleteCellProcedure:   {permission: cell.PermissionAdmin},
	fairleadv1connect.CellServiceGetCellProcedure:      {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.CellServiceListCellsProcedure:    {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.CellServiceCordonCellProcedure:   {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.CellServiceDrainCellProcedure:    {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.CellServiceEvacuateCellProcedure: {permission: cell.PermissionOperate, or: cell.PermissionAdmin},

	fairleadv1connect.PlacementServiceShowPlacementProcedure:    {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.PlacementServicePlanPlacementProcedure:    {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.PlacementServiceApplyPlacementProcedure:   {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.PlacementServiceCheckPlacementProcedure:   {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.PlacementServiceExplainPlacementProcedure: {permission: cell.PermissionOperate, or: cell.PermissionAdmin},

	// Moving a tenant changes nothing that it is promised, and can be taken back: it is what runs the cluster, as emptying a cell is.
	fairleadv1connect.MigrationServicePlanMigrationProcedure:    {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.MigrationServiceStartMigrationProcedure:   {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.MigrationServiceGetMigrationProcedure:     {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.MigrationServiceListMigrationsProcedure:   {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.MigrationServiceControlMigrationProcedure: {permission: cell.PermissionOperate, or: cell.PermissionAdmin},
	fairleadv1connect.MigrationServiceDiffMigrationProcedure:    {permission: cell.PermissionOperate, or: cell.PermissionAdmin},

	fairleadv1connect.AuditServiceListAuditProcedure: {permission: cell.PermissionOperate, or: cell.PermissionAdmin},

	fairleadv1connect.RegistryServiceJoinProcedure:        {open: true, atMost: joinsMax, bytesMax: joinBytesMax},
	fairleadv1connect.RegistryServiceBootstrapProcedure:   {internal: true},
	fairleadv1connect.RegistryServiceRegisterProcedure:    {internal: true},
	fairleadv1connect.RegistryServiceWatchRoutesProcedure: {internal: true},

	fairleadv1connect.ReplicaServiceOpenLogProcedure:    {internal: true},
	fairleadv1connect.ReplicaServiceGetLogProcedure:     {internal: true},
	fairleadv1connect.ReplicaServiceChangePeerProcedure: {internal: true},
	fairleadv1connect.ReplicaServiceLeadProcedure:       {internal: true},
	fairleadv1connect.ReplicaServiceSaveProcedure:       {internal: true},

	fairleadv1connect.TenancyServiceConfigureProcedure:      {internal: true},
	fairleadv1connect.TenancyServiceMeasureDemandProcedure:  {internal: true},
	fairleadv1connect.TenancyServiceExplainTenancyProcedure: {internal: true},

	fairleadv1connect.LaneServiceGetLanesProcedure:    {internal: true},
	fairleadv1connect.LaneServiceStageLaneProcedure:   {internal: true},
	fairleadv1connect.LaneServiceTrackLaneProcedure:   {internal: true},
	fairleadv1connect.LaneServiceExportLaneProcedure:  {internal: true},
	fairleadv1connect.LaneServiceImportLaneProcedure:  {internal: true},
	fairleadv1connect.LaneServiceSetLaneModeProcedure: {internal: true},
	fairleadv1connect.LaneServiceDigestLaneProcedure:  {internal: true},
	fairleadv1connect.LaneServiceWipeLaneProcedure:    {internal: true},
	fairleadv1connect.LaneServiceProveLaneProcedure:   {internal: true},

	"/" + grpchealth.HealthV1ServiceName + "/Check": {open: true},
	"/" + grpchealth.HealthV1ServiceName + "/Watch": {open: true},

	"/" + grpcreflect.ReflectV1ServiceName + "/ServerReflectionInfo":      {stream: true},
	"/" + grpcreflect.ReflectV1AlphaServiceName + "/ServerReflectionInfo": {stream: true},
}

// check returns the reason why c may not call procedure, or nil.
func (n need) check(procedure string, c cell.Caller) error {
	switch {
	case n.permission == 0:
		return nil
	case !c.May(n.permission) && (n.or == 0 || !c.May(n.or)):
		return refuseScope(procedure, n, c)
	case n.permission.OfPlatformOnly() && c.Tenant != "":
		return refusePlatformOnly(procedure, n, c)
	case n.tenant && c.Tenant == "":
		return refuseNoTenant(procedure, n, c)
	default:
		return nil
	}
}

// scopes are the words for what a key must have.
func (n need) scopes() string {
	if n.or == 0 {
		return n.permission.String()
	}
	return n.permission.String() + " or " + n.or.String()
}

// checkService returns an error unless path is that of a service, such as /fairlead.v1.JobService/, each of whose methods has a row in
// the table.
func checkService(path string) error {
	name := strings.Trim(path, "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return fmt.Errorf("gateway: %s is the path of no known service: %w", path, err)
	}
	s, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return fmt.Errorf("gateway: %s names a %T and not a service", path, d)
	}
	var missing []string
	for i := range s.Methods().Len() {
		procedure := "/" + name + "/" + string(s.Methods().Get(i).Name())
		if _, ok := permissions[procedure]; !ok {
			missing = append(missing, procedure)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("gateway: no permission is stated for %s: add a row to the table", strings.Join(missing, ", "))
	}
	return nil
}
