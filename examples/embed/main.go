// Command embed watches a cluster from within a program.
package main

import (
	"context"
	"fmt"

	"github.com/lockstep-ha/lockstep/monitor"
)

func main() {
	m, err := monitor.New(monitor.Config{User: "lockstep", Password: "secret", Servers: []monitor.ServerConfig{
		{Name: "s1", Address: "10.0.0.1:3306"}, {Name: "s2", Address: "10.0.0.2:3306"}, {Name: "s3", Address: "10.0.0.3:3306"},
	}})
	if err != nil {
		panic(err)
	}
	go m.Watch(context.Background(), func(v monitor.View) { fmt.Println(v.Primary, v.Reason) })
	_ = m.Run(context.Background())
}
