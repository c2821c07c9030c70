package testdb

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"
)

// A monitor tells servers to replicate from the very address at which it finds
// them itself. So containers share one network, in which a server has the same
// port as outside: 127.0.0.1 and the port mean the same server to the test and
// to every server. That network belongs to a container that does nothing else,
// since ports can be published only when it is created, and must stay when the
// servers come and go.

// podPorts is how many servers one network has room for, if not more are asked
// for at once.
const podPorts = 12

// netPod is such a network.
type netPod struct {
	pool  *dockertest.Pool
	group *podGroup
	res   *dockertest.Resource
	free  []int // ports for servers
	taken int   // ports given to servers
}

// podGroup is the networks that servers are put into. Servers of different
// networks cannot replicate from one another, so a cluster has a group of its
// own, of one network with room for all.
type podGroup struct {
	servers int // to be expected

	mu  sync.Mutex
	all map[*netPod]struct{}
}

// loosePods is the group of the servers that were started one by one.
var loosePods podGroup

// takePort takes a port for a server from a network that has one, or from a new
// one.
func (g *podGroup) takePort(pool *dockertest.Pool, image string) (*netPod, int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.all {
		if len(p.free) > 0 {
			return p, p.take(), nil
		}
	}
	p, err := newPod(pool, image, max(podPorts, g.servers))
	if err != nil {
		return nil, 0, fmt.Errorf("start the containers' network: %w", err)
	}
	p.group = g
	if g.all == nil {
		g.all = map[*netPod]struct{}{}
	}
	g.all[p] = struct{}{}
	return p, p.take(), nil
}

func (p *netPod) take() int {
	port := p.free[0]
	p.free = p.free[1:]
	p.taken++
	return port
}

// giveBack ends the network with its last server. The port is not given again,
// lest a client of the old server talk to a new one.
func (p *netPod) giveBack() error {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	if p.taken--; p.taken > 0 {
		return nil
	}
	delete(p.group.all, p)
	return ignoreGone(p.pool.Purge(p.res))
}

func newPod(pool *dockertest.Pool, image string, ports int) (*netPod, error) {
	p := &netPod{pool: pool}
	bindings := map[dc.Port][]dc.PortBinding{}
	var exposed []string
	for range ports {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		p.free = append(p.free, port)
		inside := strconv.Itoa(port) + "/tcp"
		exposed = append(exposed, inside)
		bindings[dc.Port(inside)] = []dc.PortBinding{{HostIP: "127.0.0.1", HostPort: strconv.Itoa(port)}}
	}
	repository, tag := splitImage(image)
	name := fmt.Sprintf("lockstep-net-%d-%d", os.Getpid(), p.free[0])
	var err error
	p.res, err = pool.RunWithOptions(&dockertest.RunOptions{
		Name:         name,
		Repository:   repository,
		Tag:          tag,
		Entrypoint:   []string{"sleep", containerLife},
		ExposedPorts: exposed,
		PortBindings: bindings,
		Labels:       ownerLabels(),
	}, func(h *dc.HostConfig) { h.PublishAllPorts = false })
	if err != nil {
		remove := pool.Client.RemoveContainer(dc.RemoveContainerOptions{ID: name, Force: true, RemoveVolumes: true})
		return nil, errors.Join(err, ignoreGone(remove))
	}
	return p, nil
}

// join puts a container into the network.
func (p *netPod) join(h *dc.HostConfig) {
	h.NetworkMode = "container:" + p.res.Container.ID
	h.PublishAllPorts = false
}

// processExists reports whether there is a process with this id.
func processExists(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
