package BeeDelayQueue_test

import (
	"context"
	"fmt"

	BeeDelayQueue "github.com/punctualmq/punctual/compat/beedelayqueue"
)

// MassageListener is the listener of BeeDelayQueue's readme.
type MassageListener struct {
	delayClient *BeeDelayQueue.DelayQueueController
	done        chan bool
}

func (p *MassageListener) Set(delayClient *BeeDelayQueue.DelayQueueController) {
	p.delayClient = delayClient
}

func (p *MassageListener) OnMassage(msg *BeeDelayQueue.DelayMsg) bool {
	fmt.Println("received:", msg.Topic, msg.Body)
	p.delayClient.Ack(*msg, true)
	close(p.done)
	return true
}

// The program of BeeDelayQueue's readme: the same calls in the same order. It differs in the
// import, and waits one second in place of five. It closes the controller and ends when the message
// has come.
func Example() {
	var redisConfig BeeDelayQueue.RedisConfig
	redisConfig.Addr = BeeDelayQueue.ServerAddr() // 127.0.0.1:6379 there
	redisConfig.Db = 1
	delayClient, _ := BeeDelayQueue.NewDelayQueueController(redisConfig)

	topic := "orderCancel"
	delayClient.CreateDelayQueue(topic, 10, 3)

	massageListener := MassageListener{done: make(chan bool)}
	massageListener.Set(delayClient)
	delayClient.AddMassageListener(topic, &massageListener)

	body := "{\"partnerId\":\"2399\",\"shopId\":\"s001\"}"
	timeStamp, _ := delayClient.GetTimeUnix()
	execTime := timeStamp + 1
	id, err := delayClient.Push(topic, body, execTime)
	if err != nil {
		fmt.Println("not stored:", err.Error())
		return
	}
	fmt.Println("stored, its ID has", len(id), "characters")

	<-massageListener.done
	if err := delayClient.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// stored, its ID has 34 characters
	// received: orderCancel {"partnerId":"2399","shopId":"s001"}
}
