package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"agentd/internal/requests"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// View is requests.Detail for somebody who is going to see it: that they are is recorded in the run's journal, once for each principal
// and request. recorded says why it could not be; the detail is there all the same, for who may read it may read the stream.
func (d *Desk) View(ctx context.Context, id, who string) (detail requests.Detail, recorded, err error) {
	if detail, err = d.Detail(ctx, id); err != nil {
		return detail, nil, err
	}
	if detail.Item = d.Marked(ctx, []requests.Item{detail.Item})[0]; detail.Lost || detail.Kind != requests.KindPermission {
		return detail, nil, nil
	}
	return detail, d.recordView(ctx, detail, who), nil
}

func (d *Desk) recordView(ctx context.Context, detail requests.Detail, who string) error {
	if err := wire.CheckPrincipal(who); err != nil {
		return err
	}
	reply, err := replySubject(d.o.Conn, detail.Subject, who)
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]string{"args_sha256": detail.Request.ArgsHash})
	if err != nil {
		return fmt.Errorf("encode view: %w", err)
	}
	call := detail.Event
	ctx, cancel := context.WithTimeout(ctx, d.o.Patience)
	defer cancel()
	return d.o.Conn.First(ctx, reply, wire.Event{
		ID: call.ID + "-viewed" + strings.TrimSuffix("-"+who, "-"), Source: Source, Type: sdk.TypePermissionViewed, Subject: call.Subject,
		Time: d.now(), DataContentType: wire.ContentTypeJSON, DataSchema: call.DataSchema, Data: data, To: call.RedirectTo,
		ParentID: call.ID, AccessControl: call.AccessControl, TraceParent: call.TraceParent, TraceState: call.TraceState,
	})
}
