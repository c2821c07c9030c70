// Package testdb starts real MariaDB servers for the tests, the benchmarks and
// the demo program.
//
// A server is by default a mariadbd process of this machine, with a data
// directory of its own that is copied from a cached template, so that one is up
// in about half a second. Where there is no mariadbd but Docker answers, the
// same server runs in a container. Both look the same from outside: a server is
// reached at 127.0.0.1 and its port, by the test and by the other servers.
//
//	srv, err := testdb.Start(ctx, testdb.Options{})
//	...
//	defer srv.Close()
//
// In a test:
//
//	c := testdb.NewCluster(t, 3, testdb.ClusterOptions{})
//	c.Primary().Kill()
//
// Servers end with the process that started them, even when it is killed:
// on Linux the kernel kills mariadbd, and a container has a time limit and is
// removed by the next run. What a killed run leaves behind in the temporary
// directory is removed by the next run too.
//
// Environment:
//
//   - LOCKSTEP_DB=10.5, 10.11, 11.8 or mysql takes that version instead of the
//     server that is installed; 'make setup' gets it;
//   - LOCKSTEP_BACKEND=process or docker forces a backend;
//   - LOCKSTEP_IMAGE=NAME:TAG names the image of the Docker backend;
//   - LOCKSTEP_NO_SERVERS=1 makes [New] and [NewCluster] skip the test when no
//     server can be had, instead of failing it.
package testdb
