package mariadb

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/sqlrows"
	"github.com/lockstep-ha/lockstep/topology"
	"github.com/lockstep-ha/lockstep/topology/gtid"
)

func table(columns string, rows ...string) sqlrows.Table {
	t := sqlrows.Table{Columns: strings.Split(columns, "|")}
	for _, r := range rows {
		var cells []*string
		for _, c := range strings.Split(r, "|") {
			cells = append(cells, &c)
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// The events are those of MariaDB 10.11, in both binary log formats.
func TestTransactions(t *testing.T) {
	events := table("Event_type|Info",
		"Format_desc|Server ver: 10.11.6-MariaDB-log, Binlog ver: 4", "Gtid_list|[0-1-3]", "Binlog_checkpoint|b.000001",
		"Gtid|GTID 0-1-4", "Query|use `t`; create table x(a int primary key,\n b text)",
		"Gtid|BEGIN GTID 0-1-5", "Query|use `t`; insert into x values (1,'abc')", "Xid|COMMIT /* xid=15 */",
		"Gtid|BEGIN GTID 0-1-6 cid=3", "Query|use `t`; insert into x values (3,'e')", "Query|use `t`; update x set b='zz'", "Xid|COMMIT /* xid=19 */",
		"Gtid|BEGIN GTID 0-1-7", "Annotate_rows|update x set b='q' where a=2", "Table_map|table_id: 18 (t.x)", "Update_rows_v1|table_id: 18 flags: STMT_END_F",
		"Annotate_rows|delete from x", "Table_map|table_id: 18 (t.x)", "Delete_rows_v1|table_id: 18 flags: STMT_END_F", "Xid|COMMIT /* xid=23 */",
		"Gtid|BEGIN GTID 5-1-8", "Table_map|table_id: 18 (t.x)", "Write_rows_v1|table_id: 18 flags: STMT_END_F", "Query|COMMIT",
		"Gtid|GTID 0-1-9", "Query|"+strings.Repeat("\u00e9", 100), "Gtid|GTID nonsense", "Query|drop table x", "Gtid|GTID 0-1-10")
	var want []string
	show := func(keep func(gtid.GTID) bool) []string {
		var out []string
		for _, x := range Transactions(&events, keep) {
			out = append(out, x.GTID.String()+" "+x.Summary+strings.Repeat(" +", x.More))
		}
		return out
	}
	want = []string{
		"0-1-4 use `t`; create table x(a int primary key, b text)",
		"0-1-5 use `t`; insert into x values (1,'abc')",
		"0-1-6 use `t`; insert into x values (3,'e') +",
		"0-1-7 update x set b='q' where a=2 +",
		"5-1-8 rows of t.x",
		"0-1-9 " + strings.Repeat("\u00e9", 60) + "...",
		"0-1-10 ",
	}
	require.Equal(t, want, show(func(gtid.GTID) bool { return true }))
	require.Equal(t, want[1:2], show(func(id gtid.GTID) bool { return id.Seq == 5 }))
	require.Empty(t, show(func(gtid.GTID) bool { return false }))
}

func TestDisks(t *testing.T) {
	where := func(data, binlog string) sqlrows.Table { return table("datadir|binlog", data+"|"+binlog) }
	disks := table("Path|Total|Available", "/|1000|900", "/var/lib/mysql|500|100", "/var/lib/mysqld|500|1", "/log|100|10", "/proc|0|0", "/more|10|20")
	for name, x := range map[string]struct {
		tables []sqlrows.Table
		want   topology.Disk
		ok     bool
	}{
		"its own disk":     {[]sqlrows.Table{where("/var/lib/mysql/", "/var/lib/mysql/bin"), disks}, topology.Disk{Path: "/var/lib/mysql", TotalKiB: 500, FreeKiB: 100}, true},
		"below it":         {[]sqlrows.Table{where("/var/lib/mysql/data/", ""), disks}, topology.Disk{Path: "/var/lib/mysql", TotalKiB: 500, FreeKiB: 100}, true},
		"the root":         {[]sqlrows.Table{where("/srv/data/", "/srv/bin"), disks}, topology.Disk{Path: "/", TotalKiB: 1000, FreeKiB: 900}, true},
		"the fuller one":   {[]sqlrows.Table{where("/srv/data/", "/log/bin"), disks}, topology.Disk{Path: "/log", TotalKiB: 100, FreeKiB: 10}, true},
		"no size":          {[]sqlrows.Table{where("/proc/x/", ""), disks}, topology.Disk{}, false},
		"more than all":    {[]sqlrows.Table{where("/more/x/", ""), disks}, topology.Disk{Path: "/more", TotalKiB: 10, FreeKiB: 10}, true},
		"none shown":       {[]sqlrows.Table{where("/srv/", ""), table("Path|Total|Available")}, topology.Disk{}, false},
		"not asked":        {[]sqlrows.Table{where("/srv/", "")}, topology.Disk{}, false},
		"no answer at all": {nil, topology.Disk{}, false},
	} {
		got, ok, err := ParseDisks(x.tables)
		require.NoError(t, err, name)
		require.Equal(t, x.ok, ok, name)
		require.Equal(t, x.want, got, name)
	}
	_, _, err := ParseDisks([]sqlrows.Table{where("/srv/", ""), table("Path|Total|Available", "/|x|1")})
	require.ErrorContains(t, err, "size of /")
	require.InDelta(t, 20, topology.Disk{TotalKiB: 500, FreeKiB: 100}.FreePercent(), 1e-9)
}
