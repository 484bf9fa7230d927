import type { Attributes } from '../../../lib/otlp-exporter.ts';

export interface TracingSettings {
  url: string;
  headers: Record<string, string>;
  resource: Attributes;
}

/**
 * Settings from OpenTelemetry's own environment variables; undefined if they ask for no traces. A variable
 * with a value that is not supported is reported and ignored, because it may be meant for other programs on
 * the machine.
 */
export function tracingSettings(
  env: NodeJS.ProcessEnv,
  warn: (message: string) => void,
): TracingSettings | undefined {
  const own = env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'];
  const shared = env['OTEL_EXPORTER_OTLP_ENDPOINT'];
  const endpoint = own || shared;
  if (
    !endpoint ||
    env['OTEL_SDK_DISABLED']?.toLowerCase() === 'true' ||
    env['OTEL_TRACES_EXPORTER'] === 'none'
  )
    return undefined;
  const protocol = env['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL'] || env['OTEL_EXPORTER_OTLP_PROTOCOL'];
  if (protocol === 'grpc') {
    warn(
      'OTLP over gRPC is not spoken here, so no traces are exported; use http/json and the collector’s HTTP port',
    );
    return undefined;
  }
  const url = URL.parse(endpoint);
  if (!url || !/^https?:$/.test(url.protocol)) {
    warn(`"${endpoint}" is not an HTTP address, so no traces are exported`);
    return undefined;
  }
  if (!own) url.pathname = `${url.pathname.replace(/\/$/, '')}/v1/traces`;
  return {
    url: url.href,
    headers: {
      ...pairs(env['OTEL_EXPORTER_OTLP_HEADERS']),
      ...pairs(env['OTEL_EXPORTER_OTLP_TRACES_HEADERS']),
    },
    resource: {
      'service.name': 'cay',
      ...pairs(env['OTEL_RESOURCE_ATTRIBUTES']),
      ...named(env['OTEL_SERVICE_NAME']),
    },
  };
}

function named(name: string | undefined): Attributes {
  return name ? { 'service.name': name } : {};
}

/** `a=1,b=2`, values percent-encoded. */
function pairs(text: string | undefined): Record<string, string> {
  return Object.fromEntries(
    (text ?? '').split(',').flatMap((pair) => {
      const at = pair.indexOf('=');
      return at <= 0 ? [] : [[pair.slice(0, at).trim(), decode(pair.slice(at + 1).trim())]];
    }),
  );
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
