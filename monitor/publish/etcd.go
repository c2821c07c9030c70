package publish

import (
	"context"
	"crypto/tls"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// EtcdConfig says how to reach etcd.
type EtcdConfig struct {
	Endpoints      []string
	User, Password string
	// TLS is nil for connections in the clear.
	TLS *tls.Config
	// Prefix is put before the names of clusters.
	Prefix string
}

// etcd is a store in etcd, by its API of version 3.
type etcd struct {
	client *clientv3.Client
	prefix string
}

// NewEtcd returns a store in etcd. It connects in the background; close ends that.
func NewEtcd(c EtcdConfig) (store Store, closeStore func() error, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints, Username: c.User, Password: c.Password, TLS: c.TLS,
		DialTimeout: storeTime, DialKeepAliveTime: recheck, DialKeepAliveTimeout: storeTime, Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, fmt.Errorf("etcd: %w", err)
	}
	return &etcd{client, c.Prefix}, client.Close, nil
}

// Name implements Store.
func (*etcd) Name() string { return "etcd" }

func (s *etcd) key(cluster, name string) string { return s.prefix + "/" + cluster + "/" + name }

// Get implements Store.
func (s *etcd) Get(ctx context.Context, cluster string) ([]byte, uint64, error) {
	resp, err := s.client.Get(ctx, s.key(cluster, "primary"))
	if err != nil || len(resp.Kvs) == 0 {
		return nil, 0, err
	}
	return resp.Kvs[0].Value, uint64(max(resp.Kvs[0].ModRevision, 0)), nil
}

// Put implements Store.
func (s *etcd) Put(ctx context.Context, cluster string, value []byte, address string, version uint64) (bool, error) {
	key := s.key(cluster, "primary")
	resp, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", int64(version&(1<<63-1)))).
		Then(clientv3.OpPut(key, string(value)), clientv3.OpPut(s.key(cluster, "address"), address)).Commit()
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}
