import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;

/** Posts files with the HTTP client of Java's class library: ADDRESS CONTENT_TYPE ENCODING FILE … */
public final class JdkClient {
  public static void main(String[] arguments) throws Exception {
    for (int i = 0; i < arguments.length; i += 4) {
      // A client of its own, so that each request is the first of its connection and asks for h2c.
      HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_2).build();
      HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(arguments[i]))
          .header("content-type", arguments[i + 1])
          .POST(HttpRequest.BodyPublishers.ofByteArray(Files.readAllBytes(Path.of(arguments[i + 3]))));
      if (!arguments[i + 2].equals("identity")) {
        request.header("content-encoding", arguments[i + 2]);
      }
      HttpResponse<byte[]> answer = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
      System.out.println(answer.statusCode() + " " + answer.version());
    }
  }
}
