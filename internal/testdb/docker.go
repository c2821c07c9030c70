package testdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"
)

const (
	officialImage = "mariadb:11.8"
	// builtImage is what integration/images/build-mariadb.sh builds.
	builtImage = "lockstep-mariadb"

	dataDir = "/var/lib/mysql"
	// containerLife ends a container whose test was killed, in seconds.
	containerLife = "3600"
)

// builtTags are the tags of builtImage, the preferred first.
var builtTags = []string{"11.8", "10.11", "10.5"}

// dockerPool returns the connection to the Docker engine. The first call removes
// what killed runs have left there.
var dockerPool = sync.OnceValues(func() (*dockertest.Pool, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, err
	}
	if err := pool.Client.Ping(); err != nil {
		return nil, fmt.Errorf("docker does not answer: %w", err)
	}
	sweepContainers(pool.Client)
	return pool, nil
})

// dockerAnswers reports whether there is a Docker engine.
func dockerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer := make(chan bool, 1)
	go func() {
		_, err := dockerPool()
		answer <- err == nil
	}()
	select {
	case yes := <-answer:
		return yes
	case <-ctx.Done():
		return false
	}
}

// haveImage reports whether an image is there.
func haveImage(image string) bool {
	pool, err := dockerPool()
	if err != nil {
		return false
	}
	_, err = pool.Client.InspectImage(image)
	return err == nil
}

// findImage returns the image to run: the one that is named, else that of the
// version, else one that is present, else the official one, pulled.
func findImage(ctx context.Context, pool *dockertest.Pool, named, version string) (string, error) {
	if named == "" {
		named = os.Getenv("LOCKSTEP_IMAGE")
	}
	if named == "" && version != "" {
		image := builtImage + ":" + version
		if !haveImage(image) {
			return "", fmt.Errorf("the image %s is not there: build it with integration/images/build-mariadb.sh %s", image, version)
		}
		return image, nil
	}
	candidates := []string{named}
	if named == "" {
		candidates = []string{officialImage}
		for _, tag := range builtTags {
			candidates = append(candidates, builtImage+":"+tag)
		}
	}
	for _, image := range candidates {
		if _, err := pool.Client.InspectImage(image); err == nil {
			return image, nil
		}
	}
	repository, tag := splitImage(candidates[0])
	err := pool.Client.PullImage(dc.PullImageOptions{
		Repository: repository, Tag: tag, Context: ctx,
	}, dc.AuthConfiguration{})
	if err != nil {
		return "", fmt.Errorf("the image %s is not there and cannot be pulled (%w); run 'make setup' or integration/images/build-mariadb.sh 10.11", candidates[0], err)
	}
	return candidates[0], nil
}

func splitImage(image string) (repository, tag string) {
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:]
	}
	return image, "latest"
}

// Containers and volumes carry the process that made them, by which a later run
// on the same machine tells what may be removed.
const (
	labelOwner = "lockstep.testdb.pid"
	labelHost  = "lockstep.testdb.host"
)

var hostname = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
})

func ownerLabels() map[string]string {
	return map[string]string{labelOwner: strconv.Itoa(os.Getpid()), labelHost: hostname()}
}

// orphan reports whether labels are those of a process that is gone.
func orphan(labels map[string]string) bool {
	pid, err := strconv.Atoi(labels[labelOwner])
	return err == nil && labels[labelHost] == hostname() && !processExists(pid)
}

func sweepContainers(client *dc.Client) {
	filters := map[string][]string{"label": {labelOwner}}
	containers, err := client.ListContainers(dc.ListContainersOptions{All: true, Filters: filters})
	if err != nil {
		return
	}
	for _, c := range containers {
		if orphan(c.Labels) {
			_ = client.RemoveContainer(dc.RemoveContainerOptions{ID: c.ID, Force: true, RemoveVolumes: true})
		}
	}
	volumes, err := client.ListVolumes(dc.ListVolumesOptions{Filters: filters})
	if err != nil {
		return
	}
	for _, v := range volumes {
		if orphan(v.Labels) {
			_ = client.RemoveVolumeWithOptions(dc.RemoveVolumeOptions{Name: v.Name})
		}
	}
}

// container is an instance that runs in a container. Its data is in a volume, so
// that it can be started again with other arguments, in another container.
type container struct {
	pool   *dockertest.Pool
	image  string
	net    *netPod
	port   int
	name   string
	volume string

	mu   sync.Mutex
	res  *dockertest.Resource
	gone chan struct{}
}

func newContainer(ctx context.Context, o *Options) (*container, error) {
	if o.Port != 0 {
		return nil, fmt.Errorf("the Docker backend chooses the port itself, so it cannot be %d", o.Port)
	}
	pool, err := dockerPool()
	if err != nil {
		return nil, err
	}
	version, err := o.version()
	if err != nil {
		return nil, err
	}
	image, err := findImage(ctx, pool, o.Image, version)
	if err != nil {
		return nil, err
	}
	c := &container{pool: pool, image: image, gone: make(chan struct{})}
	close(c.gone)
	if c.net, c.port, err = o.podGroup().takePort(pool, image); err != nil {
		return nil, err
	}
	o.Port = c.port
	c.name = fmt.Sprintf("lockstep-%s-%d-%d", fileName(o.Name), os.Getpid(), c.port)
	volume, err := pool.Client.CreateVolume(dc.CreateVolumeOptions{Name: c.name, Labels: ownerLabels(), Context: ctx})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create a volume: %w", err), c.net.giveBack())
	}
	c.volume = volume.Name
	return c, nil
}

func (c *container) start(_ context.Context, args []string) error {
	if err := c.kill(); err != nil {
		return err
	}
	if err := c.discard(); err != nil {
		return err
	}
	repository, tag := splitImage(c.image)
	entrypoint := []string{"timeout", "-s", "KILL", containerLife}
	if !strings.HasPrefix(c.image, builtImage+":") {
		entrypoint = append(entrypoint, "docker-entrypoint.sh")
	}
	res, err := c.pool.RunWithOptions(&dockertest.RunOptions{
		Name:       c.name,
		Repository: repository,
		Tag:        tag,
		Entrypoint: entrypoint,
		Cmd: append([]string{
			"mariadbd", "--no-defaults", "--datadir=" + dataDir,
			"--socket=/run/mysqld/mysqld.sock", "--bind-address=0.0.0.0",
		}, args...),
		// For the official image; the built one is as these say.
		Env:    []string{"MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1", "MARIADB_ROOT_HOST=%", "MARIADB_INITDB_SKIP_TZINFO=1"},
		Mounts: []string{c.volume + ":" + dataDir},
		Labels: ownerLabels(),
	}, c.net.join)
	if err != nil {
		return errors.Join(err, c.removeByName())
	}
	gone := make(chan struct{})
	c.mu.Lock()
	c.res, c.gone = res, gone
	c.mu.Unlock()
	go func() {
		_, _ = c.pool.Client.WaitContainer(res.Container.ID) // how it ended is for its log to tell
		close(gone)
	}()
	return nil
}

// running returns the id of the container if it has not ended.
func (c *container) running() (id string, gone <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.gone:
		return "", c.gone
	default:
		return c.res.Container.ID, c.gone
	}
}

func (c *container) kill() error {
	id, gone := c.running()
	if id == "" {
		return nil
	}
	if err := ignoreGone(c.pool.Client.KillContainer(dc.KillContainerOptions{ID: id, Signal: dc.SIGKILL})); err != nil {
		return err
	}
	<-gone
	return nil
}

func (c *container) stop(ctx context.Context) error {
	id, gone := c.running()
	if id == "" {
		return nil
	}
	// One that is not frozen cannot be thawed; either is fine.
	_ = c.pool.Client.UnpauseContainer(id)
	err := ignoreGone(c.pool.Client.KillContainer(dc.KillContainerOptions{ID: id, Signal: dc.SIGTERM, Context: ctx}))
	if err != nil {
		return err
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("the server did not stop: %w", ctx.Err()), c.kill())
	}
}

func (c *container) freeze() error {
	id, _ := c.running()
	if id == "" {
		return errNotRunning
	}
	return c.pool.Client.PauseContainer(id)
}

func (c *container) thaw() error {
	id, _ := c.running()
	if id == "" {
		return nil
	}
	return c.pool.Client.UnpauseContainer(id)
}

func (c *container) exited() <-chan struct{} {
	_, gone := c.running()
	return gone
}

func (c *container) pid() int {
	id, _ := c.running()
	if id == "" {
		return 0
	}
	info, err := c.pool.Client.InspectContainer(id)
	if err != nil {
		return 0
	}
	return info.State.Pid
}

func (c *container) socket() string  { return "" }
func (c *container) logPath() string { return "docker logs " + c.name }

func (c *container) logTail(n int) string {
	c.mu.Lock()
	res := c.res
	c.mu.Unlock()
	if res == nil {
		return ""
	}
	var text bytes.Buffer
	err := c.pool.Client.Logs(dc.LogsOptions{
		Container: res.Container.ID, Stdout: true, Stderr: true,
		OutputStream: &text, ErrorStream: &text, Tail: strconv.Itoa(n),
	})
	if err != nil {
		return err.Error()
	}
	return lastLines(text.String(), n)
}

// discard removes the container of the last run.
func (c *container) discard() error {
	c.mu.Lock()
	res := c.res
	c.res = nil
	c.mu.Unlock()
	if res == nil {
		return nil
	}
	return ignoreGone(c.pool.Purge(res))
}

// removeByName removes a container that was created and did not start.
func (c *container) removeByName() error {
	return ignoreGone(c.pool.Client.RemoveContainer(dc.RemoveContainerOptions{ID: c.name, Force: true, RemoveVolumes: true}))
}

func (c *container) remove() error {
	err := c.discard()
	return errors.Join(err,
		ignoreGone(c.pool.Client.RemoveVolumeWithOptions(dc.RemoveVolumeOptions{Name: c.volume})),
		c.net.giveBack())
}

// ignoreGone drops an error that says that what was to end has ended.
func ignoreGone(err error) error {
	var noContainer *dc.NoSuchContainer
	var notRunning *dc.ContainerNotRunning
	if errors.As(err, &noContainer) || errors.As(err, &notRunning) || errors.Is(err, dc.ErrNoSuchVolume) {
		return nil
	}
	return err
}
