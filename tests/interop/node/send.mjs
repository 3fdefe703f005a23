// OpenTelemetry's SDK for JavaScript sends what tests/interop/contents.py describes.
import { context, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { CompressionAlgorithm } from '@opentelemetry/otlp-exporter-base';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchLogRecordProcessor, LoggerProvider } from '@opentelemetry/sdk-logs';
import { MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';

const [http, grpc] = process.argv.slice(2);
const SECONDS = 1_700_000_000;
const SIGNALS = { trace: 'OTLPTraceExporter', logs: 'OTLPLogExporter', metrics: 'OTLPMetricExporter' };

async function exporter(signal, kind, compression) {
  const module = await import(`@opentelemetry/exporter-${signal}-otlp-${kind}`);
  const path = signal === 'trace' ? 'traces' : signal;
  const url = kind === 'grpc' ? grpc : `${http}/v1/${path}`;
  return new module[SIGNALS[signal]]({ url, compression });
}

function attributes(i) {
  return { text: `é∂✓ ${i}`, int: 2 ** 52 + 1, double: 0.1, bool: true, list: ['a', 'b'] };
}

async function sendSpans(resource, out) {
  const processor = new BatchSpanProcessor(out, { maxExportBatchSize: 10 });
  const provider = new BasicTracerProvider({ resource, spanProcessors: [processor] });
  const tracer = provider.getTracer('interop');
  const ids = [];
  let root, previous;
  for (let i = 0; i < 25; i++) {
    const at = (more) => [SECONDS, i * 1_000_000 + 7 + more];
    const links = previous ? [{ context: previous, attributes: { why: 'batch' } }] : [];
    const parent = root ? trace.setSpan(context.active(), root) : context.active();
    const options = { kind: SpanKind.SERVER, attributes: attributes(i), links, startTime: at(0) };
    const span = tracer.startSpan(`span-${String(i).padStart(2, '0')}`, options, parent);
    span.addEvent('retry', { attempt: i }, at(5));
    if (i % 2 === 1) span.setStatus({ code: SpanStatusCode.ERROR, message: 'broken' });
    span.end(at(1_000_001 + i));
    root ??= span;
    previous = span.spanContext();
    ids.push([previous.traceId, previous.spanId]);
  }
  await provider.shutdown();
  return ids;
}

async function sendLogs(resource, out) {
  const processor = new BatchLogRecordProcessor({ exporter: out, maxExportBatchSize: 10 });
  const provider = new LoggerProvider({ resource, processors: [processor] });
  for (let i = 0; i < 25; i++) {
    provider.getLogger('interop').emit({
      timestamp: [SECONDS, i * 1_000_000 + 3],
      severityNumber: 13,
      severityText: 'WARN',
      body: `log-${String(i).padStart(2, '0')}`,
      attributes: attributes(i),
    });
  }
  await provider.shutdown();
}

async function sendMetrics(resource, out) {
  const reader = new PeriodicExportingMetricReader({ exporter: out });
  const provider = new MeterProvider({ resource, readers: [reader] });
  const meter = provider.getMeter('interop');
  const requests = meter.createCounter('requests', { valueType: 0 });
  for (let i = 0; i < 5; i++) requests.add((i + 1) * 1000, { route: `r${i}` });
  const latency = meter.createHistogram('latency');
  for (const value of [1, 30, 700]) latency.record(value);
  meter.createGauge('level').record(0.1);
  await provider.shutdown();
}

for (const [kind, name] of [['proto', 'http'], ['http', 'json'], ['grpc', 'grpc']]) {
  for (const compression of [CompressionAlgorithm.NONE, CompressionAlgorithm.GZIP]) {
    const label = `node-${name}-${compression}`;
    const resource = resourceFromAttributes({ 'service.name': label });
    const spans = await sendSpans(resource, await exporter('trace', kind, compression));
    await sendLogs(resource, await exporter('logs', kind, compression));
    await sendMetrics(resource, await exporter('metrics', kind, compression));
    console.log(JSON.stringify({ label, spans }));
  }
}
