import { anyText } from './kinds.ts';
import { setting } from './setting.ts';

/**
 * OpenTelemetry's own variables. What is not supported in them is a warning, because others may mean them.
 */
const tracingVariable = (variable: string, help: string, secret?: true) =>
  setting(anyText, {
    group: 'tracing',
    value: 'text',
    help,
    flag: false,
    variable,
    ...(secret && { secret }),
  });

export const tracingSettings = {
  otelEndpoint: tracingVariable('OTEL_EXPORTER_OTLP_ENDPOINT', 'the collector that gets traces, over HTTP'),
  otelTracesEndpoint: tracingVariable('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'the same, as a whole address'),
  otelProtocol: tracingVariable('OTEL_EXPORTER_OTLP_PROTOCOL', 'http/json is spoken, and grpc is not'),
  otelTracesProtocol: tracingVariable('OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'the same, of traces alone'),
  otelHeaders: tracingVariable('OTEL_EXPORTER_OTLP_HEADERS', 'headers for the collector, as a=1,b=2', true),
  otelTracesHeaders: tracingVariable('OTEL_EXPORTER_OTLP_TRACES_HEADERS', 'the same, of traces alone', true),
  otelServiceName: tracingVariable('OTEL_SERVICE_NAME', 'what the server is called in traces'),
  otelResourceAttributes: tracingVariable(
    'OTEL_RESOURCE_ATTRIBUTES',
    'what else is said about it, as a=1,b=2',
  ),
  otelTracesExporter: tracingVariable('OTEL_TRACES_EXPORTER', '"none" turns traces off'),
  otelSdkDisabled: tracingVariable('OTEL_SDK_DISABLED', '"true" turns traces off'),
};
