package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/consul/api"
)

// ConsulConfig says how to reach Consul.
type ConsulConfig struct {
	// Address is the URL of an agent. Token is an ACL token, "" for none. CA is a PEM
	// file with authorities, "" for those of the system.
	Address, Token, CA string
	// Prefix is put before the names of clusters.
	Prefix string
}

// consul is the key-value store of Consul.
type consul struct {
	client *api.Client
	prefix string
}

// NewConsul returns the key-value store of Consul. It does not connect yet.
func NewConsul(c ConsulConfig) (Store, error) {
	cfg := api.DefaultNonPooledConfig()
	cfg.Address, cfg.Token, cfg.TLSConfig.CAFile = c.Address, c.Token, c.CA
	client, err := api.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	return &consul{client, c.Prefix}, nil
}

// Name implements Store.
func (*consul) Name() string { return "consul" }

func (s *consul) key(cluster, name string) string { return s.prefix + "/" + cluster + "/" + name }

// Get implements Store.
func (s *consul) Get(ctx context.Context, cluster string) ([]byte, uint64, error) {
	opts := (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx)
	pair, _, err := s.client.KV().Get(s.key(cluster, "primary"), opts)
	if err != nil || pair == nil {
		return nil, 0, err
	}
	return pair.Value, pair.ModifyIndex, nil
}

// Put implements Store.
func (s *consul) Put(ctx context.Context, cluster string, value []byte, address string, version uint64) (bool, error) {
	ok, resp, _, err := s.client.Txn().Txn(api.TxnOps{
		{KV: &api.KVTxnOp{Verb: api.KVCAS, Key: s.key(cluster, "primary"), Value: value, Index: version}},
		{KV: &api.KVTxnOp{Verb: api.KVSet, Key: s.key(cluster, "address"), Value: []byte(address)}},
	}, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil || ok {
		return ok, err
	}
	for _, e := range resp.Errors {
		if e.OpIndex != 0 {
			return false, errors.New(e.What) // no permission for the address, say
		}
	}
	return false, nil
}
