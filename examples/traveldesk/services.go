package main

import (
	"context"
	"embed"
	"sync"

	"agentd/sdk"
	"agentd/sdk/service"
)

// The contracts are those of agentd.yaml. A call that does not fit its contract is answered before a handler sees it.
//
//go:embed contracts
var contracts embed.FS

// load makes a service of a contract; a handler is all that it needs.
func load[In, Out any](name string, handler func(context.Context, service.Call, In) (Out, error)) (*service.Service, error) {
	file := "contracts/" + name + ".yaml"
	data, err := contracts.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s, err := service.Parse(file, data)
	if err == nil {
		service.Handle(s, handler)
	}
	return s, err
}

// Canned offers: the same for everybody, every day.
var (
	flights = []Flight{
		{ID: "TP-533", Airline: "TAP", Departs: "09:40", Price: 189},
		{ID: "LH-1166", Airline: "Lufthansa", Departs: "13:15", Price: 244},
	}
	hotels = []Hotel{
		{ID: "casa-do-rio", Name: "Casa do Rio", Price: 105},
		{ID: "grand-avenida", Name: "Grand Avenida", Price: 198},
		{ID: "pensao-sol", Name: "Pensao Sol", Price: 60},
	}
)

// Flight is an offer. Price is in euros, there and back.
type Flight struct {
	ID      string  `json:"id"`
	Airline string  `json:"airline"`
	Departs string  `json:"departs"`
	Price   float64 `json:"price_eur"`
}

type flightQuery struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Depart string `json:"depart"`
}

type foundFlights struct {
	Flights []Flight `json:"flights"`
}

func searchFlights(_ context.Context, call service.Call, q flightQuery) (foundFlights, error) {
	show(call, "%s to %s on %s", q.From, q.To, q.Depart)
	return foundFlights{flights}, nil
}

// Hotel is an offer. Price is in euros for one night; on the wire it is for all nights.
type Hotel struct {
	ID    string  `json:"id"`
	Name  string  `json:"name"`
	Price float64 `json:"total_eur"`
}

type hotelQuery struct {
	City   string `json:"city"`
	Nights int    `json:"nights"`
}

type foundHotels struct {
	Hotels []Hotel `json:"hotels"`
}

func searchHotels(_ context.Context, call service.Call, q hotelQuery) (foundHotels, error) {
	show(call, "%s, %d nights", q.City, q.Nights)
	var found foundHotels
	for _, h := range hotels {
		h.Price *= float64(q.Nights)
		found.Hotels = append(found.Hotels, h)
	}
	return found, nil
}

type place struct {
	City string `json:"city"`
	Day  string `json:"day"`
}

type weather struct {
	Sky     string `json:"sky"`
	Celsius int    `json:"celsius"`
}

func forecast(_ context.Context, call service.Call, p place) (weather, error) {
	show(call, "%s on %s", p.City, p.Day)
	return weather{Sky: "sunny", Celsius: 17}, nil
}

type order struct {
	Flight string `json:"flight"`
	Hotel  string `json:"hotel"`
	Nights int    `json:"nights"`
}

type booking struct {
	Reference string  `json:"reference"`
	Total     float64 `json:"total_eur"`
}

// bookings are those made, by the call that asked for them. A real service keeps them in its database.
type bookings struct {
	mu   sync.Mutex
	made map[string]booking
}

// book books once for each call: after a crash the same call may be delivered again, with the same idempotency key.
func (b *bookings) book(_ context.Context, call service.Call, o order) (booking, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if done, ok := b.made[call.IdempotencyKey]; ok {
		return done, nil
	}
	price, ok := o.price()
	if !ok {
		return booking{}, sdk.Errorf(sdk.CodeTool, "flight %q or hotel %q does not exist; search again", o.Flight, o.Hotel)
	}
	done := booking{Reference: "TRIP-" + o.Flight + "-" + o.Hotel, Total: price}
	b.made[call.IdempotencyKey] = done
	show(call, "%s and %s for %.0f euros: %s", o.Flight, o.Hotel, price, done.Reference)
	return done, nil
}

// price is that of the ordered offers together, if there are such.
func (o order) price() (total float64, ok bool) {
	found := 0
	for _, f := range flights {
		if f.ID == o.Flight {
			total, found = total+f.Price, found+1
		}
	}
	for _, h := range hotels {
		if h.ID == o.Hotel {
			total, found = total+h.Price*float64(o.Nights), found+1
		}
	}
	return total, found == 2
}
