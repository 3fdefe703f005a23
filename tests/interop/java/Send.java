import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.logs.Severity;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanBuilder;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.context.Context;
import io.opentelemetry.exporter.otlp.http.logs.OtlpHttpLogRecordExporter;
import io.opentelemetry.exporter.otlp.http.metrics.OtlpHttpMetricExporter;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.exporter.otlp.logs.OtlpGrpcLogRecordExporter;
import io.opentelemetry.exporter.otlp.metrics.OtlpGrpcMetricExporter;
import io.opentelemetry.exporter.otlp.trace.OtlpGrpcSpanExporter;
import io.opentelemetry.sdk.common.CompletableResultCode;
import io.opentelemetry.sdk.logs.SdkLoggerProvider;
import io.opentelemetry.sdk.logs.export.BatchLogRecordProcessor;
import io.opentelemetry.sdk.logs.export.LogRecordExporter;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.metrics.export.MetricExporter;
import io.opentelemetry.sdk.metrics.export.PeriodicMetricReader;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;
import io.opentelemetry.sdk.trace.export.SpanExporter;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** OpenTelemetry's SDK for Java sends what tests/interop/contents.py describes. */
public final class Send {
  private static final long BEGIN = 1_700_000_000_000_000_000L;
  private static final String SENDER = "io.opentelemetry.sdk.common.export.HttpSenderProvider";

  public static void main(String[] arguments) {
    String http = arguments[0];
    String grpc = arguments[1];
    for (String compression : List.of("none", "gzip")) {
      for (String sender : List.of("jdk", "okhttp")) {
        useSender(sender);
        send("java-" + sender + "-http-" + compression,
            OtlpHttpSpanExporter.builder().setEndpoint(http + "/v1/traces").setCompression(compression).build(),
            OtlpHttpLogRecordExporter.builder().setEndpoint(http + "/v1/logs").setCompression(compression).build(),
            OtlpHttpMetricExporter.builder().setEndpoint(http + "/v1/metrics").setCompression(compression).build());
      }
      send("java-okhttp-grpc-" + compression,
          OtlpGrpcSpanExporter.builder().setEndpoint(grpc).setCompression(compression).build(),
          OtlpGrpcLogRecordExporter.builder().setEndpoint(grpc).setCompression(compression).build(),
          OtlpGrpcMetricExporter.builder().setEndpoint(grpc).setCompression(compression).build());
    }
    System.exit(0); // okhttp's threads linger
  }

  private static void useSender(String name) {
    String type = name.equals("jdk") ? "JdkHttpSenderProvider" : "OkHttpHttpSenderProvider";
    System.setProperty(SENDER, "io.opentelemetry.exporter.sender." + name + ".internal." + type);
  }

  private static void send(String label, SpanExporter spans, LogRecordExporter logs, MetricExporter metrics) {
    Resource resource = Resource.create(Attributes.of(AttributeKey.stringKey("service.name"), label));
    List<String> ids = sendSpans(resource, spans);
    sendLogs(resource, logs);
    sendMetrics(resource, metrics);
    System.out.println("{\"label\": \"" + label + "\", \"spans\": [" + String.join(", ", ids) + "]}");
  }

  private static List<String> sendSpans(Resource resource, SpanExporter exporter) {
    SdkTracerProvider provider = SdkTracerProvider.builder().setResource(resource)
        .addSpanProcessor(BatchSpanProcessor.builder(exporter).setMaxExportBatchSize(10).build()).build();
    List<String> ids = new ArrayList<>();
    Span root = null;
    SpanContext previous = null;
    for (int i = 0; i < 25; i++) {
      long start = BEGIN + i * 1_000_000L + 7;
      SpanBuilder builder = provider.get("interop").spanBuilder(String.format("span-%02d", i))
          .setSpanKind(SpanKind.SERVER)
          .setAllAttributes(attributes(i))
          .setStartTimestamp(start, TimeUnit.NANOSECONDS);
      if (root != null) {
        builder.setParent(Context.root().with(root));
        builder.addLink(previous, Attributes.of(AttributeKey.stringKey("why"), "batch"));
      }
      Span span = builder.startSpan();
      span.addEvent("retry", Attributes.of(AttributeKey.longKey("attempt"), (long) i), start + 5, TimeUnit.NANOSECONDS);
      if (i % 2 == 1) {
        span.setStatus(StatusCode.ERROR, "broken");
      }
      span.end(start + 1_000_001 + i, TimeUnit.NANOSECONDS);
      root = root == null ? span : root;
      previous = span.getSpanContext();
      ids.add("[\"" + previous.getTraceId() + "\", \"" + previous.getSpanId() + "\"]");
    }
    check(provider.shutdown());
    return ids;
  }

  private static void sendLogs(Resource resource, LogRecordExporter exporter) {
    SdkLoggerProvider provider = SdkLoggerProvider.builder().setResource(resource)
        .addLogRecordProcessor(BatchLogRecordProcessor.builder(exporter).setMaxExportBatchSize(10).build()).build();
    for (int i = 0; i < 25; i++) {
      provider.get("interop").logRecordBuilder()
          .setTimestamp(BEGIN + i * 1_000_000L + 3, TimeUnit.NANOSECONDS)
          .setSeverity(Severity.WARN)
          .setSeverityText("WARN")
          .setBody(String.format("log-%02d", i))
          .setAllAttributes(attributes(i))
          .emit();
    }
    check(provider.shutdown());
  }

  private static void sendMetrics(Resource resource, MetricExporter exporter) {
    SdkMeterProvider provider = SdkMeterProvider.builder().setResource(resource)
        .registerMetricReader(PeriodicMetricReader.create(exporter)).build();
    var meter = provider.get("interop");
    for (int i = 0; i < 5; i++) {
      meter.counterBuilder("requests").build().add((i + 1) * 1000L, Attributes.of(AttributeKey.stringKey("route"), "r" + i));
    }
    for (double value : new double[] {1, 30, 700}) {
      meter.histogramBuilder("latency").build().record(value);
    }
    meter.gaugeBuilder("level").build().set(0.1);
    check(provider.shutdown());
  }

  private static Attributes attributes(int i) {
    return Attributes.builder()
        .put("text", "é∂✓ " + i)
        .put("int", (1L << 52) + 1)
        .put("double", 0.1)
        .put("bool", true)
        .put("list", "a", "b")
        .build();
  }

  private static void check(CompletableResultCode result) {
    if (!result.join(30, TimeUnit.SECONDS).isSuccess()) {
      throw new IllegalStateException("what was to be sent was not");
    }
  }
}
