package reflector

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
)

// TestAnswerHeaders: a list is read, counted and compared by its metadata however a
// server or a proxy spells the headers of its answers. net/http and client-go accept any
// spelling, too.
func TestAnswerHeaders(t *testing.T) {
	set := func(key, value string) func(*http.Response) {
		return func(resp *http.Response) { resp.Header.Set(key, value) }
	}
	gzipped := func(value string) func(*http.Response) {
		return func(resp *http.Response) {
			if resp.Header.Get("Content-Encoding") == "gzip" {
				resp.Header.Set("Content-Encoding", value)
			}
		}
	}
	for _, tc := range []struct {
		name, media string
		change      func(*http.Response)
	}{
		{"as it is", mediaJSON, func(*http.Response) {}},
		{"GZIP", mediaJSON, gzipped("GZIP")},
		{"Gzip", mediaProto, gzipped("Gzip")},
		{"x-gzip", mediaJSON, gzipped("x-gzip")},
		{"X-GZip and a space", mediaJSON, gzipped(" X-GZip ")},
		{"gzip and identity", mediaJSON, gzipped("gzip, identity")},
		{"gzip and Identity in two lines", mediaJSON, func(resp *http.Response) {
			if resp.Header.Get("Content-Encoding") == "gzip" {
				resp.Header["Content-Encoding"] = []string{"Identity", "gzip"}
			}
		}},
		{"identity", mediaProto, func(resp *http.Response) {
			if resp.Header.Get("Content-Encoding") == "" {
				resp.Header.Set("Content-Encoding", "Identity")
			}
		}},
		{"type in capitals", mediaJSON, set("Content-Type", "APPLICATION/JSON")},
		{"protobuf in capitals", mediaProto, set("Content-Type", "Application/Vnd.Kubernetes.Protobuf")},
		{"charset", mediaJSON, set("Content-Type", "application/json; charset=utf-8")},
		{"Charset and spaces", mediaJSON, set("Content-Type", " application/json ;  Charset=\"UTF-8\" ")},
		{"a semicolon", mediaJSON, set("Content-Type", "application/json;")},
		{"stream", mediaProto, set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")},
		{"no length", mediaJSON, func(resp *http.Response) {
			resp.Header.Del("Content-Length")
			resp.ContentLength = -1
		}},
		{"chunked in capitals", mediaJSON, func(resp *http.Response) {
			resp.Header.Del("Content-Length")
			resp.ContentLength, resp.TransferEncoding = -1, []string{"CHUNKED"}
		}},
	} {
		for _, repair := range []listMode{listFull, listMetadata} {
			t.Run(fmt.Sprint(tc.name, " ", repair), func(t *testing.T) {
				f := newRawFixture(t, tc.media, 0, Options{repair: repair}, func(cfg *rest.Config) {
					cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
						return roundTripper(func(req *http.Request) (*http.Response, error) {
							resp, err := next.RoundTrip(req)
							if err == nil && !isWatch(req) {
								tc.change(resp)
							}
							return resp, err
						})
					})
				})
				for i := range 200 {
					f.put(fmt.Sprintf("cm%03d", i), 1000, 1) // more than 128 KiB, which is compressed
				}
				f.list()
				if d := f.differs(); d != "" {
					t.Fatal(d)
				}
				f.put("cm100", 1000, 2)
				decoded, _, items := f.relisted()
				if decoded != 1 || items != 200 {
					t.Errorf("decoded %d of %d objects", decoded, items)
				}
			})
		}
	}
}

// TestAcceptHeader: what the client accepts may be spelt in any way, too.
func TestAcceptHeader(t *testing.T) {
	const as = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for accept, ask := range map[string]string{
		"application/json":                                     mediaJSON + as,
		"APPLICATION/JSON":                                     mediaJSON + as,
		" application/json ; q=0.9 , */*":                      mediaJSON + as,
		"Application/Vnd.Kubernetes.Protobuf,application/json": mediaProto + as,
		"application/json;as=Table;g=meta.k8s.io;v=v1":         "",
		"application/json;AS=Table;g=meta.k8s.io;v=v1":         "",
		"application/json;As=\"PartialObjectMetadata\",*/*":    "",
		"application/yaml":                                     "",
		"*/*":                                                  "",
		"":                                                     "",
	} {
		got, as := accepted(accept)
		if as != "" { // something else than whole objects
			got = ""
		}
		if got != ask {
			t.Errorf("for %q it asks for %q, not %q", accept, got, ask)
		}
	}
}
