// OpenTelemetry's SDK for Go sends what tests/interop/contents.py describes.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/metric"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

var (
	begin = time.Unix(1_700_000_000, 0)
	ctx   = context.Background()
)

type exporters struct {
	spans   sdktrace.SpanExporter
	logs    sdklog.Exporter
	metrics sdkmetric.Exporter
}

func must[T any](made T, err error) T {
	check(err)
	return made
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func overHTTP(endpoint string, gzip bool) exporters {
	packing := [3]int{int(otlptracehttp.NoCompression), int(otlploghttp.NoCompression), int(otlpmetrichttp.NoCompression)}
	if gzip {
		packing = [3]int{int(otlptracehttp.GzipCompression), int(otlploghttp.GzipCompression), int(otlpmetrichttp.GzipCompression)}
	}
	return exporters{
		must(otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint+"/v1/traces"), otlptracehttp.WithCompression(otlptracehttp.Compression(packing[0])))),
		must(otlploghttp.New(ctx, otlploghttp.WithEndpointURL(endpoint+"/v1/logs"), otlploghttp.WithCompression(otlploghttp.Compression(packing[1])))),
		must(otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(endpoint+"/v1/metrics"), otlpmetrichttp.WithCompression(otlpmetrichttp.Compression(packing[2])))),
	}
}

func overGRPC(endpoint string, gzip bool) exporters {
	spans := []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL(endpoint)}
	logs := []otlploggrpc.Option{otlploggrpc.WithEndpointURL(endpoint)}
	metrics := []otlpmetricgrpc.Option{otlpmetricgrpc.WithEndpointURL(endpoint)}
	if gzip {
		spans = append(spans, otlptracegrpc.WithCompressor("gzip"))
		logs = append(logs, otlploggrpc.WithCompressor("gzip"))
		metrics = append(metrics, otlpmetricgrpc.WithCompressor("gzip"))
	}
	return exporters{
		must(otlptracegrpc.New(ctx, spans...)),
		must(otlploggrpc.New(ctx, logs...)),
		must(otlpmetricgrpc.New(ctx, metrics...)),
	}
}

func attributes(i int) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("text", fmt.Sprintf("é∂✓ %d", i)),
		attribute.Int64("int", 1<<52+1),
		attribute.Float64("double", 0.1),
		attribute.Bool("bool", true),
		attribute.StringSlice("list", []string{"a", "b"}),
	}
}

func sendSpans(from *resource.Resource, out sdktrace.SpanExporter) [][2]string {
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(from),
		sdktrace.WithBatcher(out, sdktrace.WithMaxExportBatchSize(10)))
	ids := [][2]string{}
	parent := ctx
	var previous trace.SpanContext
	for i := range 25 {
		start := begin.Add(time.Duration(i*1_000_000 + 7))
		options := []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindServer),
			trace.WithTimestamp(start),
			trace.WithAttributes(attributes(i)...),
		}
		if previous.IsValid() {
			why := attribute.String("why", "batch")
			options = append(options, trace.WithLinks(trace.Link{SpanContext: previous, Attributes: []attribute.KeyValue{why}}))
		}
		inside, span := provider.Tracer("interop").Start(parent, fmt.Sprintf("span-%02d", i), options...)
		span.AddEvent("retry", trace.WithTimestamp(start.Add(5)), trace.WithAttributes(attribute.Int("attempt", i)))
		if i%2 == 1 {
			span.SetStatus(codes.Error, "broken")
		}
		span.End(trace.WithTimestamp(start.Add(time.Duration(1_000_001 + i))))
		if i == 0 {
			parent = inside
		}
		previous = span.SpanContext()
		ids = append(ids, [2]string{previous.TraceID().String(), previous.SpanID().String()})
	}
	check(provider.ForceFlush(ctx))
	check(provider.Shutdown(ctx))
	return ids
}

func sendLogs(from *resource.Resource, out sdklog.Exporter) {
	provider := sdklog.NewLoggerProvider(sdklog.WithResource(from),
		sdklog.WithProcessor(sdklog.NewBatchProcessor(out, sdklog.WithExportMaxBatchSize(10))))
	for i := range 25 {
		var record log.Record
		record.SetTimestamp(begin.Add(time.Duration(i*1_000_000 + 3)))
		record.SetSeverity(log.SeverityWarn)
		record.SetSeverityText("WARN")
		record.SetBody(attribute.StringValue(fmt.Sprintf("log-%02d", i)))
		record.AddAttributes(attributes(i)...)
		provider.Logger("interop").Emit(ctx, record)
	}
	check(provider.ForceFlush(ctx))
	check(provider.Shutdown(ctx))
}

func sendMetrics(from *resource.Resource, out sdkmetric.Exporter) {
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithResource(from),
		sdkmetric.WithReader(sdkmetric.NewPeriodicReader(out)))
	meter := provider.Meter("interop")
	requests := must(meter.Int64Counter("requests"))
	for i := range 5 {
		requests.Add(ctx, int64(i+1)*1000, metric.WithAttributes(attribute.String("route", fmt.Sprintf("r%d", i))))
	}
	latency := must(meter.Float64Histogram("latency"))
	for _, value := range []float64{1, 30, 700} {
		latency.Record(ctx, value)
	}
	must(meter.Float64Gauge("level")).Record(ctx, 0.1)
	check(provider.Shutdown(ctx))
}

func main() {
	ways := map[string]func(bool) exporters{
		"http": func(gzip bool) exporters { return overHTTP(os.Args[1], gzip) },
		"grpc": func(gzip bool) exporters { return overGRPC(os.Args[2], gzip) },
	}
	for name, way := range ways {
		for _, compression := range []string{"none", "gzip"} {
			label := "go-" + name + "-" + compression
			from := resource.NewSchemaless(attribute.String("service.name", label))
			to := way(compression == "gzip")
			ids := sendSpans(from, to.spans)
			sendLogs(from, to.logs)
			sendMetrics(from, to.metrics)
			check(json.NewEncoder(os.Stdout).Encode(map[string]any{"label": label, "spans": ids}))
		}
	}
}
