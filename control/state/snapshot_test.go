package state

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

var rewrite = flag.Bool("rewrite", false, "write a golden file that is missing; an existing one is never changed, since disks hold it")

func snapshotOf(t interface{ Fatal(...any) }, v View) []byte {
	var b bytes.Buffer
	n, err := v.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatal(n, err)
	}
	return b.Bytes()
}

// The snapshot in testdata is on somebody's disk: it is restored for ever. While its version is the present one, it is also written the same.
func TestGoldenSnapshot(t *testing.T) {
	path := filepath.Join("testdata", "snapshot-v1.hex")
	want := world(t)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && *rewrite {
		if err := os.WriteFile(path, []byte(hex.EncodeToString(snapshotOf(t, want.View()))+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Restore(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if got.View().Hash() != want.View().Hash() || !bytes.Equal(snapshotOf(t, got.View()), data) {
		t.Error("the restored state is another")
	}
	if wrong := got.check(); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// Whatever way a reader hands it over, a snapshot is restored whole; every cut and every flipped bit is refused or seen in the hash.
func TestRestoreRefuses(t *testing.T) {
	v := world(t).View()
	data := snapshotOf(t, v)
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(data), "bytes": iotest.OneByteReader(bytes.NewReader(data)),
		"halves": iotest.HalfReader(bytes.NewReader(data)), "with its end": iotest.DataErrReader(bytes.NewReader(data)),
	} {
		if s, err := Restore(r); err != nil || s.View().Hash() != v.Hash() {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range data {
		if _, err := Restore(bytes.NewReader(data[:i])); !errors.Is(err, ErrSnapshot) {
			t.Errorf("cut off at %d: %v", i, err)
		}
		for bit := range 8 {
			flipped := slices.Clone(data)
			flipped[i] ^= 1 << bit
			s, err := Restore(bytes.NewReader(flipped))
			if err == nil && s.View().Hash() == v.Hash() {
				t.Errorf("bit %d of byte %d is not seen", bit, i)
			}
			if err != nil && !errors.Is(err, ErrSnapshot) {
				t.Errorf("bit %d of byte %d: %v", bit, i, err)
			}
		}
	}
	record := func(num protowire.Number, body []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), body)
	}
	head := record(recordHead, number(nil, 1, snapshotVersion))
	tenant := record(recordTenant, text(nil, 1, "a"))
	for name, b := range map[string][]byte{
		"trailing":       append(slices.Clone(data), 0),
		"no head":        tenant,
		"two heads":      slices.Concat(head, head),
		"later version":  record(recordHead, number(nil, 1, snapshotVersion+1)),
		"later record":   slices.Concat(head, record(14, nil)),
		"later field":    slices.Concat(head, record(recordTenant, number(nil, 99, 1))),
		"later in head":  record(recordHead, number(number(nil, 1, 1), 99, 1)),
		"later in key":   slices.Concat(head, record(recordKey, number(nil, 99, 1))),
		"later in group": slices.Concat(head, record(recordOrganization, number(nil, 99, 1))),
		"group twice":    slices.Concat(head, record(recordOrganization, text(nil, 1, "o")), record(recordOrganization, text(nil, 1, "o"))),
		"no such group":  slices.Concat(head, record(recordTenant, text(text(nil, 1, "a"), 9, "o"))),
		"groups counted": slices.Concat(head, record(recordEnd, number(nil, 3, 1))),
		"later in end":   slices.Concat(head, record(recordEnd, number(nil, 99, 1))),
		"another type":   slices.Concat(head, record(recordTenant, protowire.AppendFixed32(protowire.AppendTag(nil, 1, protowire.Fixed32Type), 1))),
		"tenant twice":   slices.Concat(head, tenant, tenant),
		"wrong counts":   slices.Concat(head, tenant, record(recordEnd, number(nil, 1, 2))),
		"orphaned key":   slices.Concat(head, record(recordKey, text(text(nil, 1, "k"), 2, "a"))),
		"huge":           protowire.AppendVarint(slices.Concat(head, []byte{recordTenant<<3 | 2}), recordBytesMax+1),
		"number at top":  slices.Concat(head, number(nil, 3, 7)),
		"something else": []byte("PK\x03\x04 this is a zip"),
	} {
		if _, err := Restore(bytes.NewReader(b)); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Restore(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) || errors.Is(err, ErrSnapshot) {
		t.Errorf("a reader's error: %v", err)
	}
}

// failing takes n bytes and no more.
type failing struct{ n int }

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.n {
		return f.n, io.ErrShortWrite
	}
	f.n -= len(p)
	return len(p), nil
}

func TestWriteToStops(t *testing.T) {
	s := New()
	for i := range 3000 {
		id := cell.TenantID("tenant-" + hex.EncodeToString([]byte{byte(i >> 8), byte(i)}))
		s.Apply(uint64(i)+1, command.CreateTenant{Tenant: id, DisplayName: "some name of a usual length", Time: 1})
	}
	size := len(snapshotOf(t, s.View()))
	for _, n := range []int{0, writeBytes - 1, size - 1} {
		if _, err := s.View().WriteTo(&failing{n}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("after %d of %d bytes: %v", n, size, err)
		}
	}
	got, err := Restore(bytes.NewReader(snapshotOf(t, s.View())))
	if err != nil || got.View().Hash() != s.View().Hash() {
		t.Error(err)
	}
}

// A generation is the same while and after commands are applied, and may be walked meanwhile.
func TestViewStands(t *testing.T) {
	s := world(t)
	v := s.View()
	want := snapshotOf(t, v)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 50 {
				if !bytes.Equal(snapshotOf(t, v), want) {
					t.Error("the generation changed")
				}
				if _, ok := v.KeyByHash(hashOf("k-live")); !ok {
					t.Error("a key is gone")
				}
			}
		})
	}
	for i := range 500 {
		s.Apply(uint64(100+i), command.UpdateTenant{Tenant: "acme", Weight: new(cell.Weight(i)), Time: 2000})
	}
	s.Apply(1000, command.RevokeKey{Key: "k-live", Time: 2000})
	wg.Wait()
	if k, _ := v.Key("k-live"); k.Revoked != 0 {
		t.Error("an old generation knows of a later revocation")
	}
	if k, _ := s.View().Key("k-live"); k.Revoked != 2000 {
		t.Error("the new generation does not")
	}
}
